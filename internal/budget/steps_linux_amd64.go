package budget

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// Constants that package syscall does not name.
const (
	ptraceSeize     = 0x4206
	ptraceInterrupt = 0x4207
	optTraceClone   = 1 << syscall.PTRACE_EVENT_CLONE
	optExitKill     = 1 << 20
	eventStop       = 128
	waitAll         = 0x40000000 // __WALL: threads, too
	waitOwn         = 0x20000000 // __WNOTHREAD: no children of other threads of this process
	userRIP         = 16 * 8
)

// A read of the clock counts as so many instructions, however many it takes on this machine; and so
// many instructions last a nanosecond by the child's clock.
const (
	clockRead = 50
	perNano   = 3
	most      = 2_000_000 // several times the longest round
)

// Round is the counts between two marks.
type Round struct {
	Steps int             // instructions
	Reads int             // of the clock
	Calls int             // of the system
	At    map[uintptr]int // instructions by address
}

// Steps starts cmd. When that is ready, it has to write a line to its output, wait for one on its
// input, and call [Mark] rounds+1 times. Steps counts the instructions between the marks, in all
// threads but the runtime's monitor (sysmon): that one is stopped, so no goroutine is preempted. It
// stops at the first round that is enough, as each instruction takes some 30 us. The process is
// killed afterwards.
//
// From the first mark on the child's clock is slow: it stands still but for the instructions that
// are counted. The child should run with GOMAXPROCS=1 and without garbage collection, or its
// threads get into each other's way.
//
// Without sysmon two goroutines that wake each other may keep the processor for ever: a woken one
// inherits the rest of its waker's time slice, which has no end. A round of most steps is taken for
// one of these: an error that Is [ErrStarved].
//
// An error that Is [errors.ErrUnsupported] means that this machine does not let one process trace
// another.
func Steps(cmd *exec.Cmd, rounds int, enough func(Round) bool) ([]Round, error) {
	runtime.LockOSThread() // a tracee belongs to a thread
	defer runtime.UnlockOSThread()
	offset, err := clockOffset()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &tracer{pid: cmd.Process.Pid, threads: make(map[int]*thread), calls: make(map[uint64]bool)}
	defer func() {
		_ = cmd.Process.Kill()
		t.reap()
		_ = cmd.Wait() // for the pipes
	}()
	var ready [6]byte
	if _, err := out.Read(ready[:]); err != nil || string(ready[:]) != "ready\n" {
		return nil, fmt.Errorf("budget: the child is not ready: %q, %w", ready, err)
	}
	base, _, err := vdso(strconv.Itoa(t.pid))
	if err != nil {
		return nil, err
	}
	t.gettime = base + offset
	if err := t.seize(); err != nil {
		return nil, err
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		return nil, err
	}
	if _, err := t.untilMark(); err != nil {
		return nil, err
	}
	var all []Round
	for range rounds {
		r, err := t.untilMark()
		if err != nil {
			return nil, err
		}
		all = append(all, r)
		if enough(r) {
			break
		}
	}
	return all, nil
}

// Mark begins and ends a round.
func Mark() { runtime.Breakpoint() }

type thread struct {
	rip    uint64 // before the step under way
	frozen bool
}

type tracer struct {
	pid     int
	threads map[int]*thread
	stops   bool // threads are stepped, after the first mark
	mark    uint64
	gettime uint64 // address of clock_gettime in the vDSO

	calls map[uint64]bool // addresses seen: whether the instruction is a system call
	round Round
	total int
	mono  int64 // both clocks at the first mark
	wall  int64
}

func ptrace(request, tid int, addr, data uintptr) error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0); e != 0 {
		return e
	}
	return nil
}

// seize begins to trace all threads, and those that they will start.
func (t *tracer) seize() error {
	for found := true; found; {
		found = false
		tids, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.pid))
		if err != nil {
			return err
		}
		for _, e := range tids {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || t.threads[tid] != nil {
				continue
			}
			switch err := ptrace(ptraceSeize, tid, 0, optTraceClone|optExitKill); err {
			case syscall.EPERM, syscall.ENOSYS:
				return fmt.Errorf("budget: ptrace: %w: %w", err, errors.ErrUnsupported)
			case nil:
				t.threads[tid] = &thread{}
				found = true
			}
		}
	}
	return nil
}

// untilMark lets the child run until its next mark.
func (t *tracer) untilMark() (Round, error) {
	t.round = Round{At: make(map[uintptr]int)}
	for {
		tid, st, err := t.wait()
		if err != nil {
			return Round{}, err
		}
		marked, err := t.stopped(tid, st)
		if marked || err != nil {
			return t.round, err
		}
		if t.round.Steps > most {
			return t.round, ErrStarved
		}
	}
}

func (t *tracer) wait() (int, syscall.WaitStatus, error) {
	for {
		var st syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &st, waitAll|waitOwn, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, 0, fmt.Errorf("budget: wait: %w", err)
		case (st.Exited() || st.Signaled()) && tid != t.pid:
			delete(t.threads, tid)
			continue
		case st.Exited() || st.Signaled():
			return 0, 0, fmt.Errorf("budget: the child ended: status %#x", st)
		}
		return tid, st, nil
	}
}

// stopped deals with a thread that has stopped, and lets it go on.
func (t *tracer) stopped(tid int, st syscall.WaitStatus) (marked bool, err error) {
	x := t.threads[tid]
	if x == nil { // a new one
		x = &thread{}
		t.threads[tid] = x
	}
	signal := 0
	switch event := int(st) >> 16; {
	case event == eventStop && t.stops && !x.frozen && x.rip == 0:
		// Interrupted by freeze, or new.
		if x.rip, err = peekRIP(tid); err != nil {
			return false, err
		}
	case event != 0:
	case st.StopSignal() == syscall.SIGTRAP:
		rip, err := peekRIP(tid)
		if err != nil {
			return false, err
		}
		if !t.stops {
			t.mark = rip
		}
		if rip == t.mark && t.atMark(tid) {
			if !t.stops {
				if err := t.freeze(tid); err != nil {
					return false, err
				}
			}
			x.rip = rip
			return true, t.resume(tid, 0)
		}
		if err := t.stepped(tid, x, rip); err != nil {
			return false, err
		}
	default:
		signal = int(st.StopSignal())
	}
	return false, t.resume(tid, signal)
}

// atMark tells a breakpoint from a step that ended at the instruction after it.
func (t *tracer) atMark(tid int) bool {
	const kernel = 0x80 // SI_KERNEL: the int3 instruction
	var info [128]byte
	if ptrace(syscall.PTRACE_GETSIGINFO, tid, 0, uintptr(unsafe.Pointer(&info))) != nil {
		return false
	}
	return *(*int32)(unsafe.Pointer(&info[8])) == kernel
}

func (t *tracer) resume(tid, signal int) error {
	request := syscall.PTRACE_CONT
	if x := t.threads[tid]; t.stops && x.frozen {
		return nil
	} else if t.stops {
		request = syscall.PTRACE_SINGLESTEP
	}
	if err := ptrace(request, tid, 0, uintptr(signal)); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("budget: resume: %w", err)
	}
	return nil
}

// stepped counts the instruction that a thread has executed: the one at x.rip.
func (t *tracer) stepped(tid int, x *thread, rip uint64) error {
	if x.rip != 0 {
		t.round.Steps++
		t.total++
		t.round.At[uintptr(x.rip)]++
		call, known := t.calls[x.rip]
		if !known {
			var b [2]byte
			if _, err := syscall.PtracePeekText(tid, uintptr(x.rip), b[:]); err == nil {
				call = b == [2]byte{0x0f, 0x05}
			}
			t.calls[x.rip] = call
		}
		if call {
			t.round.Calls++
		}
	}
	x.rip = rip
	if rip == t.gettime {
		return t.readClock(tid, x)
	}
	return nil
}

// readClock takes the place of clock_gettime.
func (t *tracer) readClock(tid int, x *thread) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	t.round.Reads++
	t.round.Steps += clockRead
	t.total += clockRead
	t.round.At[uintptr(x.rip)] += clockRead
	now := t.mono
	if regs.Rdi == 0 { // CLOCK_REALTIME
		now = t.wall
	}
	now += int64(t.total / perNano)
	spec := syscall.NsecToTimespec(now)
	if _, err := syscall.PtracePokeData(tid, uintptr(regs.Rsi), (*[unsafe.Sizeof(spec)]byte)(unsafe.Pointer(&spec))[:]); err != nil {
		return err
	}
	var back [8]byte
	if _, err := syscall.PtracePeekData(tid, uintptr(regs.Rsp), back[:]); err != nil {
		return err
	}
	regs.Rip, regs.Rsp, regs.Rax = *(*uint64)(unsafe.Pointer(&back)), regs.Rsp+8, 0
	x.rip = regs.Rip
	return syscall.PtraceSetRegs(tid, &regs)
}

// freeze stops all threads but the one that has reached the mark; those that stop are stepped from
// now on. The thread of sysmon, which is the first that a process starts, stays where it is, once
// it sleeps: elsewhere it may have a lock.
func (t *tracer) freeze(at int) error {
	sysmon := t.sysmon()
	for tid, x := range t.threads {
		if tid != at && tid != sysmon {
			x.rip = 0
			if err := ptrace(ptraceInterrupt, tid, 0, 0); err != nil && err != syscall.ESRCH {
				return err
			}
		}
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if err := ptrace(ptraceInterrupt, sysmon, 0, 0); err != nil {
			return err
		}
		var st syscall.WaitStatus
		if _, err := syscall.Wait4(sysmon, &st, waitAll|waitOwn, nil); err != nil {
			return err
		}
		var regs syscall.PtraceRegs
		if err := syscall.PtraceGetRegs(sysmon, &regs); err != nil {
			return err
		}
		if n := int64(regs.Orig_rax); n == syscall.SYS_NANOSLEEP || n == syscall.SYS_FUTEX {
			break
		}
		if time.Now().After(end) {
			return errors.New("budget: sysmon does not sleep")
		}
		if err := ptrace(syscall.PTRACE_CONT, sysmon, 0, 0); err != nil {
			return err
		}
	}
	t.threads[sysmon].frozen = true
	var mono syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&mono)), 0); e != 0 {
		return e
	}
	t.mono, t.wall, t.stops = mono.Nano(), time.Now().UnixNano(), true
	return nil
}

func (t *tracer) sysmon() int {
	var tids []int
	for tid := range t.threads {
		if tid != t.pid {
			tids = append(tids, tid)
		}
	}
	slices.SortFunc(tids, func(a, b int) int { // numbers begin again at some limit
		if (a < t.pid) != (b < t.pid) {
			return b - a
		}
		return a - b
	})
	if len(tids) == 0 {
		return 0
	}
	return tids[0]
}

// reap waits until the child, which was killed, and all its threads have ended.
func (t *tracer) reap() {
	for {
		var st syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &st, waitAll|waitOwn, nil)
		if err != nil && err != syscall.EINTR || tid == t.pid && (st.Exited() || st.Signaled()) {
			return
		}
	}
}

func peekRIP(tid int) (uint64, error) {
	var rip uint64
	if err := ptrace(syscall.PTRACE_PEEKUSR, tid, userRIP, uintptr(unsafe.Pointer(&rip))); err != nil {
		return 0, fmt.Errorf("budget: peek: %w", err)
	}
	return rip, nil
}
