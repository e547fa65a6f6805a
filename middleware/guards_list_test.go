package middleware_test

// guards are in the order of docs/http.md's sections and of the routers'.
var guards = []guard{
	// Handlers that return without an answer, and adapters.
	{
		what: "silence is no answer to keep", file: "idempotent_attempt.go",
		old: "if (x.rw.silent() || x.rw.cut()) && !x.rw.refused {", new: "if x.rw.cut() {", tests: "TestIdempotent_HandlerThatWritesNothing",
	},
	{
		what: "gRPC without a status is no answer to keep", file: "idempotent_attempt.go",
		old: "x.rw.silent() || x.rw.cut()", new: "x.rw.silent()", tests: "TestIdempotent_GRPCWithoutStatus",
	},
	{
		what: "gRPC's code is the outcome", file: "idempotent_attempt.go",
		old: "Final(rw.meant())", new: "Final(rw.status)", tests: "TestIdempotent_GRPCCodes TestIdempotent_GRPCFinal TestIdempotent_GRPCTooLarge",
	},
	{
		what: "gRPC's code is the outcome of a real call", file: "idempotent_attempt.go", dir: "grpc",
		old: "Final(rw.meant())", new: "Final(rw.status)", tests: "TestIdempotent_CodesByHTTP",
	},
	{
		what: "gRPC without a status is the rest of a real call", file: "idempotent_attempt.go", dir: "grpc",
		old: "x.rw.silent() || x.rw.cut()", new: "x.rw.silent()", tests: "TestIdempotent_LossByHTTP",
	},
	{
		what: "replays have no length before trailers", file: "answer.go",
		old: "_ = http.NewResponseController(w).Flush()", new: "_ = w", tests: "TestIdempotent_GRPCReplay",
	},
	{
		what: "nothing is read past a frame", file: "answer_grpc.go",
		old: "if uint64(size) > uint64(len(rest)) {", new: "if false {", tests: "TestIdempotent_GRPCBodiesWithoutCode",
	},
	{
		what: "silence is no answer to share", file: "recorder.go",
		old: "if r.status != 0 || r.hijack {\n\t\tr.ended = true", new: "if r.WriteHeader(200); true {\n\t\tr.ended = true",
		tests: "TestCoalesce_HandlerThatWritesNothing TestIdempotent_HandlerThatWritesNothing",
	},
	{
		what: "silence is logged", file: "idempotent_attempt.go",
		old: `x.m.logger.Error("holdfast: a handler has returned without an answer`, new: `x.m.logger.Debug("holdfast: a handler has returned without an answer`,
		tests: "TestIdempotent_HandlerThatWritesNothing",
	},
	{
		what: "silence under Coalesce is logged", file: "coalesce.go",
		old: `h.logger.Warn("holdfast: a handler has returned without`, new: `h.logger.Debug("holdfast: a handler has returned without`,
		tests: "TestCoalesce_HandlerThatWritesNothing",
	},
	{
		what: "flights are those of the Coalesce", file: "coalesce.go",
		old: "return &coalesced{coalescer: h,",
		new: "own := &coalescer{key: h.key, opts: h.opts, refusals: h.refusals}\n" +
			"own.flights.Spawn = func(f func()) { own.spawned = true; go f() }\nreturn &coalesced{coalescer: own,",
		tests: "TestCoalesce_HandlerWrappedPerRequest",
	},
	{
		what: "Echo's error handler runs inside", file: "echo/echo.go", dir: "echo",
		old: "c.Echo().HTTPErrorHandler(c, x.err)", new: "_ = 0", tests: "TestUse",
	},
	{
		what: "Echo's handler writes to the middleware", file: "echo/echo.go", dir: "echo",
		old: "c.SetResponse(inner)", new: "_ = 0", tests: "TestUse",
	},
	{
		what: "Echo has the parameters as path values", file: "echo/echo.go", dir: "echo",
		old: "r.SetPathValue(p.Name, p.Value)", new: "_ = p", tests: "TestUse",
	},
	{
		what: "Echo returns the error as well", file: "echo/echo.go", dir: "echo",
		old: "return x.err", new: "return nil", tests: "TestUse_ErrorsAreReturned",
	},
	{
		what: "Echo 4's error handler runs inside", file: "echov4/echo.go", dir: "echov4",
		old: "c.Echo().HTTPErrorHandler(x.err, c)", new: "_ = 0", tests: "TestUse",
	},
	{
		what: "Echo's hooks run before the header is written", file: "echo/echo.go", dir: "echo",
		old: "!taken.hijacked {", new: "w.Header() != nil {\n\t\tw.Write(nil)", tests: "TestUse_Before",
	},
	{
		what: "Gin's handler writes to the middleware", file: "gin/gin.go", dir: "gin",
		old: "c.Writer = inner\n", new: "\n", tests: "TestUse",
	},
	{
		what: "Gin's handler does not run if refused", file: "gin/gin.go", dir: "gin",
		old: "c.Abort()", new: "_ = 0", tests: "TestUse",
	},
	{
		what: "Gin's errors are left to others", file: "gin/gin.go", dir: "gin",
		old: "if len(c.Errors) == errors {", new: "if _ = errors; true {", tests: "TestUse_ErrorsWrittenAround",
	},

	// Which client's answer it is.
	{
		what: "every header tells users apart", file: "coalesce_same.go",
		old: "if !harmless[name] && !slices.Contains(h.opts.Ignore, name) {", new: `if name == "Authorization" || name == "Cookie" {`,
		tests: "TestCoalesceDistinguishes TestCoalesceUserNeverGetsAnothersAnswer",
	},
	{
		what: "harmless headers do not", file: "coalesce_same.go",
		old: "if !harmless[name] &&", new: "if", tests: "TestCoalesceDistinguishes",
	},
	{
		what: "certificates tell users apart", file: "coalesce_same.go",
		old: "d.add(certificate(r))", new: "_ = 0", tests: "TestCoalesce_CertificatesApart",
	},
	{
		what: "a scope is required", file: "idempotent.go",
		old: "if scope == nil {", new: "if false {", tests: "TestConstructorsPanic TestIdempotentRefusesBadOptions",
	},
	{
		what: "the scope tells users apart", file: "idempotent_key.go",
		old: "d.add(scope)", new: "_ = scope", tests: "TestIdempotentUserNeverGetsAnothersAnswer TestIdempotent_SameRequestWithinTheScope",
	},
	{
		what: "another Host is the same request", file: "idempotent_key.go",
		old: "d.add(r.URL.RawQuery)", new: "d.add(r.URL.RawQuery + r.Host)", tests: "TestIdempotent_SameRequestWithinTheScope",
	},
	{
		what: "a renewed cookie is the same request", file: "idempotent_key.go",
		old: "d.add(r.URL.RawQuery)", new: `d.add(r.URL.RawQuery + r.Header.Get("Cookie"))`, tests: "TestIdempotent_SameRequestWithinTheScope",
	},
	{
		what: "a renewed bearer is the same request", file: "idempotent_key.go",
		old: "d.add(scope)", new: `d.add(scope + r.Header.Get("Authorization"))`, tests: "TestIdempotent_SameRequestWithinTheScope",
	},
	{
		what: "a body that was read in part is not compared", file: "idempotent_key.go",
		old: "ofServer(r.Body)) {", new: "false) {", tests: "TestIdempotent_BodyThatWasReadInPart",
	},
	{
		what: "a client's hop header is not believed", file: "hop_mark.go",
		old: "if len(values) != 1 {\n\t\treturn false", new: "if len(values) != 2 {\n\t\treturn true", tests: "TestRoute_HopHeaderOfAClient",
	},
	{
		what: "a node's mark is not for handlers", file: "hop_mark.go",
		old: `[1]string{"1"}`, new: "[1]string{values[0]}", tests: "TestRoute_HopHeaderOfAClient",
	},

	// Slow bodies.
	{
		what: "chunked bodies are read ahead", file: "ahead.go",
		old: "if !readsAside(w, r) {", new: "if r.ContentLength < 0 {\n\t\treturn r\n\t}\n\tif !readsAside(w, r) {",
		tests: "TestSerialize_SlowBodyDoesNotKeepTheLock",
	},
	{
		what: "bodies with Expect are read ahead", file: "ahead.go",
		old: "if _, ok := r.Body.(*ahead); ok {", new: `if _, ok := r.Body.(*ahead); ok || r.Header["Expect"] != nil {`,
		tests: "TestSerialize_SlowBodyDoesNotKeepTheLock",
	},
	{
		what: "a body that is larger is read ahead up to the limit", file: "ahead.go",
		old: "if !readsAside(w, r) {", new: "if r.ContentLength > most {\n\t\treturn r\n\t}\n\tif !readsAside(w, r) {",
		tests: "TestSerialize_SlowBodyDoesNotKeepTheLock",
	},
	{
		what: "reading ahead has an end", file: "ahead.go",
		old: "case <-t.C:\n\tcase <-ctx.Done():\n\t}", new: "case <-ctx.Done():\n\t}", tests: "TestSerialize_BodyOverHTTP2",
	},
	{
		what: "the rest of a body has a deadline", file: "serialize.go",
		old: "if limit <= 0 || r.Body == nil", new: "if true || r.Body == nil", tests: "TestSerialize_BodyTimeout",
	},

	// Where records are kept.
	{
		what: "large answers are not kept by default", file: "idempotent_options.go",
		old: "setDefault(&f.MaxAnswer, 64<<10)", new: "setDefault(&f.MaxAnswer, 1<<20)", tests: "TestIdempotent_LargeAnswersLeaveRoomForLocks",
	},
	{
		what: "memory that locks share is told", file: "idempotent.go",
		old: "s.CheckMemory(c.Namespace(), m.logger)", new: "_ = s", tests: "TestIdempotent_WarnsOfSharedMemory",
	},

	// Offers of h2c.
	{
		what: "an offer of h2c is no upgrade", file: "answer.go",
		old: `if !strings.EqualFold(protocol, "h2c") {`, new: "if protocol != \"\" {", tests: "TestRoute_UpgradeToH2C TestCoalesceDistinguishes",
	},
	{
		what: "Coalesce takes an offer of h2c for none", file: "coalesce_same.go",
		old: `!upgrades(r.Header["Upgrade"])`, new: `len(r.Header["Upgrade"]) == 0`, tests: "TestCoalesceDistinguishes",
	},
	{
		what: "an offer of h2c is not passed on", file: "route.go",
		old: "out := withoutH2C(r)", new: "out := r", tests: "TestRoute_UpgradeToH2C",
	},

	// Handlers that run on.
	{
		what: "Serialize knows a TimeoutHandler", file: "serialize.go",
		old: `next = keepLocked("Serialize", next)`, new: "_ = 0", tests: "TestSerialize_TimeoutHandler",
	},
	{
		what: "Idempotent knows a TimeoutHandler", file: "idempotent.go",
		old: `next = keepLocked("Idempotent", next)`, new: "_ = 0", tests: "TestIdempotent_TimeoutHandler",
	},
	{
		what: "KeepLocked keeps the lock", file: "held.go",
		old: "h.kept++", new: "h.kept += 0", tests: "TestSerialize_TimeoutHandler TestIdempotent_TimeoutHandler",
	},
	{
		what: "a handler without its lock does not begin", file: "held.go",
		old: "if h.returned {\n\t\treturn false\n\t}\n\th.kept++", new: "h.kept++", tests: "TestKeepLocked_TooLate",
	},
	{
		what: "a handler that runs on has no answer to keep", file: "idempotent_attempt.go",
		old: "if x.h.handed() {", new: "if x.h.handed() && false {", tests: "TestIdempotent_TimeoutHandler",
	},
	{
		what: "a handler that runs on is told in the log", file: "held.go",
		old: "warn := h.over && !h.warned", new: "warn := false", tests: "TestSerialize_HandlerThatRunsOn",
	},

	// Locks that are lost, and read locks in read locks.
	{
		what: "Err looks at the lock", file: "held.go",
		old: "cause := lossOf(h.ofLock())", new: "var cause error", tests: "TestErr_AfterALoss",
	},
	{
		what: "Err looks at the locks further out", file: "held.go",
		old: "if err := h.Context.Err(); err != nil {", new: "if err := h.Context.Err(); false {", tests: "TestErr_AfterALoss",
	},
	{
		what: "Err ends the context at once", file: "held.go",
		old: "h.cancel(cause)", new: "_ = 0", tests: "TestErr_AfterALoss",
	},
	{
		what: "Err of permits looks at them", file: "../internal/held/under.go",
		old: "if of.Err() != nil {", new: "if false {", tests: "TestErr_AfterALoss",
	},
	{
		what: "Err of permits looks at the locks further out", file: "../internal/held/under.go",
		old: "err := u.outer.Err()", new: "var err error", tests: "TestErr_AfterALoss",
	},
	{
		what: "a time limit is no cancellation", file: "held.go",
		old: "if errors.Is(err, context.Canceled) {", new: "if true {", tests: "TestHeld_ErrOfATimeLimit",
	},
	{
		what: "a client is there whose lock was lost", file: "problem.go",
		old: "&& !errors.Is(context.Cause(ctx), coord.ErrLost)", new: "&& coord.ErrLost != nil", tests: "TestOuterLockIsLostWhileARequestWaits",
	},
	{
		what: "a client is there whose run of Coalesce was abandoned", file: "problem.go",
		old: "ok && ctx.Err() != nil {", new: "ok && false {", tests: "TestCoalesce_RequestEndsWhileItsRunWaits",
	},
	{
		what: "a client that has gone had nothing executed", file: "problem.go",
		old: "\t\tnotExecuted(w)\n\t\tpanic(", new: "\t\tpanic(", tests: "TestIdempotent_ClientGoesBeforeTheHandler",
	},
	{
		what: "a request that was aborted before the handler may run", file: "idempotent_attempt.go",
		old: "if returned || !rw.refused &&", new: "if returned ||", tests: "TestIdempotent_ClientGoesBeforeTheHandler",
	},
	{
		what: "a handler that has unlocked goes on", file: "held.go",
		old: "!errors.Is(cause, coord.ErrUnlocked) {", new: "true || !errors.Is(cause, coord.ErrUnlocked) {", tests: "TestErr_AfterAnEarlyUnlock",
	},
	{
		what: "a lock is given back without a mutex", file: "held.go",
		old: "h.over = true\n\tlive, stop, cancel := h.live, h.stop, h.cancel\n\th.mu.Unlock()",
		new: "h.over = true\n\tlive, stop, cancel := h.live, h.stop, h.cancel\n\tdefer h.mu.Unlock()", tests: "TestHeld_CallsOthersWithoutItsMutex",
	},
	{
		what: "a reader goes by a read lock further out", file: "serialize_shared.go",
		old: "u != nil; u = readBy(u.Context) {", new: "u != nil; u = nil {", tests: "TestSerialize_SharedInShared",
	},

	// Limits by way of Route.
	{
		what: "a client's body is the client's mistake", file: "hop_mistake.go",
		old: "err := h.body.err.Load(); err != nil", new: "err := h.body.err.Load(); err != nil && false", tests: "TestRoute_LimitsAsAtTheOwner",
	},
	{
		what: "too large a body is 413", file: "hop_mistake.go",
		old: "if e, ok := errors.AsType[*http.MaxBytesError](err); ok {", new: "if e, ok := errors.AsType[*http.MaxBytesError](err); ok && false {", tests: "TestRoute_LimitsAsAtTheOwner",
	},
	{
		what: "a time limit is 504", file: "hop_mistake.go",
		old: "errors.Is(err, context.DeadlineExceeded)", new: "errors.Is(err, context.DeadlineExceeded) && false", tests: "TestRoute_LimitsAsAtTheOwner",
	},

	// The hop.
	{
		what: "the hop speaks the client's version", file: "transport.go",
		old: "if r.ProtoMajor < 2 || t.Protocols != nil {", new: "if true || t.Protocols != nil {", tests: "TestRoute_SpeaksTheClientsVersion",
	},
	{
		what: "HTTP/1.1 and upgrades stay HTTP/1.1", file: "transport.go",
		old: "if r.ProtoMajor < 2 || t.Protocols != nil {", new: "if t.Protocols != nil {", tests: "TestRoute_SpeaksTheClientsVersion",
	},
	{
		what: "what needs no HTTP/2 goes by HTTP/1.1 to an old owner", file: "transport.go",
		old: "if errors.Is(err, errNoHTTP2) && !isGRPC(r) {", new: "if false {", tests: "TestRoute_OwnerWithoutHTTP2",
	},
	{
		what: "gRPC is served here if its owner is old", file: "hop.go",
		old: "if errors.Is(h.err, errNoHTTP2) {", new: "if false {", tests: "TestRoute_OwnerWithoutHTTP2",
	},
	{
		what: "a request has its connection for itself", file: "transport_conn.go",
		old: "t.idle[to] = all[:len(all)-1]", new: "t.idle[to] = all", tests: "TestRoute_WaitingBodiesBlockNoOther TestTransport_Connections",
	},
	{
		what: "early answers pass", file: "hop.go",
		old: "if http.NewResponseController(h.w).EnableFullDuplex() == nil {", new: "if false {", tests: "TestAnOwnerThatAnswersEarly",
	},
	{
		what: "a client is told once to continue", file: "hop.go",
		old: "if code == http.StatusContinue {", new: "if false {", tests: "TestRoute_SaysContinueOnce",
	},
	{
		what: "an early answer ends the sending over HTTP/2", file: "hop.go",
		old: "if g.breaks && g.state.Load() == touched {", new: "if false {", tests: "TestRoute_EarlyAnswerOverHTTP2",
	},
	{
		what: "trailers survive a length", file: "hop.go",
		old: "res.Header.Del(\"Content-Length\")", new: "_ = res", tests: "TestRoute_TrailersOfAllVersions",
	},
	{
		what: "trailers of requests survive", file: "hop.go",
		old: "p.Out.Trailer = p.In.Trailer //", new: "p.Out.Trailer = nil //", tests: "TestRoute_TrailersOfAllVersions",
	},
	{
		what: "streams are not kept back", file: "route.go",
		old: "FlushInterval: -1, ", new: "", tests: "TestTheBeginningOfAResponseIsNotKept",
	},
	{
		what: "gRPC gets a status", file: "problem.go",
		old: "if isGRPC(r) {", new: "if false {", tests: "TestWriteProblem_GRPC",
	},
	{
		what: "gRPC gets a status of Serialize", file: "problem.go", dir: "matrix",
		old: "if isGRPC(r) {", new: "if false {", tests: "TestSerialize_RefusalsOfGRPC",
	},

	// Idle connections, and the end of a process.
	{
		what: "the transport is the first to close", file: "transport.go",
		old: "IdleConnTimeout:       10 * time.Second,", new: "IdleConnTimeout:       2 * time.Minute,", tests: "TestRoute_IdleTimes",
	},
	{
		what: "idle times are compared", file: "route.go",
		old: "s.checkIdle(r)\n", new: "_ = 0\n", tests: "TestRoute_IdleTimes",
	},
	{
		what: "a WebSocket ends with Shutdown", file: "example_test.go",
		old: "server.RegisterOnShutdown(end)", new: "_ = end", tests: "Example_shutdown",
	},

	// Several keys.
	{
		what: "all keys of a request are locked", file: "serialize_all.go",
		old: "\t\tonce = append(once, key)", new: "\t\tonce = append(once[:0], key)", tests: "TestSerializeAll_Locks TestSerializeAll_Transfers",
	},
	{
		what: "a request that is refused is counted nowhere", file: "serialize_all.go",
		old: "s.leave(keys[:i])", new: "s.leave(keys[:i][:0])", tests: "TestSerializeAll_TooManyWait",
	},
	{
		what: "each lock ends the context", file: "serialize_all.go",
		old: "locks[i] = &held{Context: ctx,", new: "locks[i] = &held{Context: context.WithoutCancel(ctx),", tests: "TestSerializeAll_LostLock",
	},

	// gRPC.
	{
		what: "a path value that was set as it was sent is decoded", file: "key.go",
		old: "s, err := url.PathUnescape(v)", new: "s, err := v, error(nil)", tests: "TestPathValuesThatWereSetAsTheyWereSent",
	},
	{
		what: "a path value of which that is not known is refused", file: "key.go",
		old: "case sent && plain:", new: "case false:", tests: "TestPathValuesThatWereSetAsTheyWereSent",
	},
	{
		what: "a call has the lock", file: "grpc/serialize.go", dir: "grpc",
		old: "l, err := lock(ctx, s.c, key, s.opts.Wait)", new: "l, err := lock(ctx, s.c, key+time.Now().String(), s.opts.Wait)", tests: "TestSerialize_OneAtATime",
	},
	{
		what: "a call goes by its own lock, however far out it was taken", file: "grpc/serialize.go", dir: "grpc",
		old: "h != nil; h, _ = h.Context.Value(lockKey{}).(*holding) {", new: "h != nil; h = nil {", tests: "TestSerialize_Nested",
	},
	{
		what: "a stream holds the lock", file: "grpc/serialize.go", dir: "grpc",
		old: "return s.run(ss.Context(), info.FullMethod, nil, func(ctx context.Context) error {\n\t\treturn next(srv, &stream{ss, ctx})\n\t})",
		new: "return next(srv, ss)", tests: "TestSerialize_Stream",
	},
	{
		what: "a call that finds too many waiting", file: "grpc/serialize.go", dir: "grpc",
		old: "if !s.queue.Enter(key, s.opts.MaxWaiters) {", new: "if !s.queue.Enter(key, -1) {", tests: "TestSerialize_TooManyWait",
	},
	{
		what: "a call that waits in vain is Aborted", file: "grpc/serialize.go", dir: "grpc",
		old: "case errors.Is(err, coord.ErrLocked):", new: "case false:", tests: "TestSerialize_Statuses",
	},
	{
		what: "a call without locks is Unavailable", file: "grpc/serialize.go", dir: "grpc",
		old: `return status.Error(codes.Unavailable, "locks are not available now")`, new: "return err", tests: "TestSerialize_Statuses",
	},
	{
		what: "a call whose lock further out was lost is Unavailable", file: "grpc/serialize.go", dir: "grpc",
		old: "case errors.Is(context.Cause(ctx), coord.ErrLost):", new: "case false:", tests: "TestSerialize_OuterLockIsLost",
	},
	{
		what: "Route redirects unary calls", file: "grpc/route.go", dir: "grpc",
		old: "r.look(ctx, info.FullMethod, req)", new: "ctx, metadata.MD(nil), error(nil)", tests: "TestRoute",
	},
	{
		what: "Route redirects streams", file: "grpc/route.go", dir: "grpc",
		old: "r.look(ctx, info.FullMethod, nil)", new: "ctx, metadata.MD(nil), error(nil)", tests: "TestRoute",
	},
	{
		what: "a Follower goes only where Route says", file: "grpc/route.go", dir: "grpc",
		old: " || !slices.Contains(trailer[nonceHeader], nonce)", new: "", tests: "TestFollower_AnErrorOfAHandler",
	},
	{
		what: "a handler does not get the nonce", file: "grpc/route.go", dir: "grpc",
		old: "delete(md, nonceHeader)", new: "", tests: "TestFollower_AnErrorOfAHandler TestRoute_KeepsTheNonce",
	},
	{
		what: "Resolve picks the owner", file: "grpc/resolve.go", dir: "grpc",
		old: "if sc, ok := p.byTarget[a.target]; ok {", new: "if sc, ok := p.byTarget[a.target]; ok && false {", tests: "TestResolve",
	},
	{
		what: "calls of a dead node end", file: "grpc/aim.go", dir: "grpc",
		old: "a.died.Store(true)\n\t\ta.cancel()", new: "a.died.Store(true)", tests: "TestResolve_NodeFoundDead",
	},
	{
		what: "calls of a dead node say so", file: "grpc/aim.go", dir: "grpc",
		old: "a.died.Store(true)\n", new: "\n", tests: "TestResolve_NodeFoundDead",
	},
	{
		what: "no call goes to a dead node", file: "grpc/aim.go", dir: "grpc",
		old: "if life.Err() != nil {", new: "if false {", tests: "TestResolve_NodeFoundDead TestResolve_OnlyNodeFoundDead",
	},
	{
		what: "repeated calls that find too many waiting", file: "grpc/idempotent.go", dir: "grpc",
		old: "MaxWaiters: o.MaxWaiters", new: "MaxWaiters: -1", tests: "TestIdempotent_MaxWaiters",
	},
	{
		what: "a repeated unary call is replayed", file: "grpc/idempotent.go", dir: "grpc",
		old: "return append(once.Encode(state, x.print), payload...)", new: "_ = state\n\treturn append(once.Encode(once.Failed, x.print), payload[:0]...)", tests: "TestIdempotent",
	},
	{
		what: "a repeated stream is replayed", file: "grpc/idempotent_stream.go", dir: "grpc",
		old: "r.messages = append(r.messages, packed)", new: "_ = packed", tests: "TestIdempotent_Stream",
	},
	{
		what: "a call of another request is refused", file: "grpc/idempotent.go", dir: "grpc",
		old: "return digest(method, string(body)), nil", new: "return digest(method, string(body[:0])), nil", tests: "TestIdempotent",
	},
}
