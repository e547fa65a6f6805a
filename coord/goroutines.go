package coord

// startServices starts the services, which live as long as the coordinator. first is the session
// that there is, nil for none.
func (c *Coordinator) startServices(first *session) {
	services := []func(){
		func() { c.keepSessions(first) },
		c.sendReleases,
		c.resendReleases,
		c.endLingers,
		c.keepReporting,
	}
	if c.opts.DeadlockAfter > 0 {
		services = append(services, c.keepFollowing)
	}
	if x := c.cluster; x != nil {
		services = append(services, x.follow, x.members.keep, x.keepPinging, x.balance, x.keepDoubting, x.keepLookingUp, x.keepAdopting, x.keepAnswering)
	}
	for _, f := range services {
		c.life.work.Go(f)
	}
}

// background makes calls of the arbiter in the background. Close waits for them; from then on none
// is made, as streams and the membership, which may ask for them, end after that.
func (c *Coordinator) background(f func()) {
	c.life.last.Lock()
	defer c.life.last.Unlock()
	if c.life.over {
		return
	}
	c.life.work.Add(1)
	c.life.pool.Go(func() {
		defer c.life.work.Done()
		f()
	})
}

// awaitGoroutines waits for every goroutine that the coordinator started, once life.ctx has ended.
func (c *Coordinator) awaitGoroutines() {
	c.life.last.Lock()
	c.life.over = true
	c.life.last.Unlock()
	c.callers.shares.work.Wait()
	c.life.work.Wait()
	c.life.pool.Close()
}

// signal wakes the goroutine that waits for it; c has capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// The goroutines of this package. Each row is a place that starts some, and a test compares the
// rows with the source. Close waits for all of them. A session's loops are awaited by maintain,
// those that reclaim in time by reclaim, and questions to other nodes by their callers.
//
//	| function                  | means     | goroutine                       | ends when             |
//	| ------------------------- | --------- | ------------------------------- | --------------------- |
//	| Coordinator.startServices | work.Go   | a service: see there            | the coordinator stops |
//	| newObserver               | work.Go   | streams as the arbiter's list is | the coordinator stops |
//	| newObserver               | work.Go   | asks for the list                | the coordinator stops |
//	| newObserver               | work.Go   | keeps list and key fresh         | the coordinator stops |
//	| Coordinator.maintain      | loops.Go  | verifies what a session has     | the session is over   |
//	| Coordinator.maintain      | loops.Go  | ends what lapses by the clock   | the session is over   |
//	| Coordinator.maintain      | loops.Go  | speaks for rounds               | the session is over   |
//	| Coordinator.maintain      | loops.Go  | ends Graces early               | the session is over   |
//	| Coordinator.maintain      | loops.Go  | pings guardians, and votes      | the session is over   |
//	| Coordinator.background    | pool.Go   | calls the arbiter: see below    | answered or given up  |
//	| contender.start           | pool.Go   | a contender                     | it is over            |
//	| spread                    | pool.Go   | one of many calls               | answered or given up  |
//	| spread                    | AfterFunc | makes room beside a slow call   | at once               |
//	| Coordinator.startReclaim  | pool.Go   | reclaims rows or records        | answered or given up  |
//	| Coordinator.startReclaim  | AfterFunc | makes room beside a slow call   | at once               |
//	| Coordinator.startReclaim  | AfterFunc | goes on without a late answer   | at once               |
//	| Coordinator.startReclaim  | AfterFunc | calls an arbiter silent         | at once               |
//	| Coordinator.answered      | pool.Go   | a call that may be late         | answered or given up  |
//	| Coordinator.renew         | pool.Go   | a renewal, which may be late    | answered or given up  |
//	| Coordinator.tryEach       | pool.Go   | one of several TryLocks         | it returns            |
//	| Coordinator.fly           | pool.Go   | a lock for callers that read    | it is had, or no more wanted |
//	| reading.vacated           | pool.Go   | tells the trace of a lock's end | at once               |
//	| block.vacated             | pool.Go   | tells the trace of a block's end | at once              |
//	| block.linger              | AfterFunc | gives back a block that idles   | at once               |
//	| block.askAgain            | AfterFunc | asks for a smaller block again  | at once               |
//	| block.startShrink         | pool.Go   | asks for a smaller block        | it is had, or the block has ended |
//	| pool.grow                 | pool.Go   | asks for larger blocks          | no caller waits, or one is refused |
//	| follower.watch            | pool.Go   | tells one of several holders    | others wait, or its lock has ended |
//	| Coordinator.sendReleases  | AfterFunc | starts a second sender          | at once               |
//	| Coordinator.relieve       | work.Go   | sends beside a slow sender      | the coordinator stops |
//	| shares.init               | work.Go   | a flight of Share               | its function returns  |
//	| shares.init               | work.Go   | a flight that refreshes early   | its function returns  |
//	| crash                     | go        | ends the process with a panic   | at once               |
//	| cluster.giveBackAll       | AfterFunc | notices the end of a context    | at once               |
//	| cluster.giveBackAll       | AfterFunc | ends the calls of a late Close  | at once               |
//	| inspection.tell           | work.Go   | a question to another node      | answered or given up  |
//	| inspection.askNames       | work.Go   | a question to another node      | answered or given up  |
//	| Coordinator.askAll        | work.Go   | a question to another node      | answered or given up  |
//	| cluster.watch             | work.Go   | watches a process of this host  | it has ended, or the coordinator stops |
//	| Coordinator.LockFor       | AfterFunc | ends a lock when its time ends   | at once               |
//	| until                     | AfterFunc | ends a context with another one | at once               |
//
// Calls of the arbiter in the background:
//
//	| function                  | means      | goroutine                                       |
//	| ------------------------- | ---------- | ----------------------------------------------- |
//	| Coordinator.advise        | background | asks for advice on the arbiter's settings       |
//	| cluster.keepAdopting      | background | gets rows for holds without owners              |
//	| Coordinator.clean         | background | removes rows that crashed processes left        |
//	| contender.lookAround      | background | the same of one key that is wanted              |
//	| guarded.once              | background | has a session buried                            |
//	| Coordinator.demoteStepped | background | demotes for a session that a clock's step ended |
//	| cluster.hasEnded          | background | looks after keys of a process that has ended    |
//	| liveness.ask              | background | asks whether a session is dead                  |
//	| cluster.doubt             | background | demotes partitions of holders out of reach      |
//	| partition.giveUp          | background | demotes a partition that was revoked            |
//	| partition.makeShared      | background | asks for a partition to become Shared           |
//	| partition.startAcquiring  | background | acquires a partition                            |
//
// Besides, package peer has goroutines for streams, and package gossip for the membership. Messages
// come in a goroutine of the arbiter's.
