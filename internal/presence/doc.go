// Package presence lets the processes of one host see each other end, with proof. It needs Linux.
// Elsewhere [Place] is "", and all else returns an error that is [errors.ErrUnsupported].
//
// A process shows itself ([Show]): it listens on an abstract socket (man 7 unix) with a name of its
// own. It accepts no connection. Another process connects while it lives ([Watch]), and reads
// ([Watcher.Ended]): nothing comes before the socket is closed.
//
// # Why it is a proof
//
// The kernel closes the socket of a process that was killed after each of its threads has let go of
// the table of open files. That is on its way out, where no code of the program runs any more. A
// process that is stopped, swapped out, traced or dumping its core keeps its socket.
//
// The kernel first takes the name away, and then resets the connections in the backlog
// (unix_release_sock in net/unix/af_unix.c). So the watcher, whose connection has broken, asks for
// the name again: ECONNREFUSED says that no socket has it. Any other answer proves nothing, such
// as EAGAIN of a full backlog, or EACCES and EPERM of SELinux, AppArmor and Landlock.
//
// By itself, a name without a socket proves nothing: abstract names belong to a network namespace.
// The process may live in another one, or on another machine. Two machines that began as one
// snapshot even have the same [Place]. So the watcher must have been connected to the name before.
// It asks with a socket that it made then, on the same thread, and so of the same namespace. That
// needs no new descriptor in the moment when it matters, either.
//
// # What delays a proof, and what it does not say
//
// Some things keep the name past the end of its process. They delay the proof, and none makes it
// false: a child between fork and exec, a process that was given the descriptor, and a stranger who
// takes the name when it is free. None can take it before, as long as the process has it; names
// have to be random, so that no stranger knows one before it is shown.
//
// A process that executes another program (execve) has ended in this sense, and one that closes its
// sign says that it has. Faulty code of a program may close a descriptor that is not its own. A
// second one, with a high number, keeps the sign up then.
//
// The kernel frees the memory of a process before it closes the files: that takes time if it is
// much.
//
// The proof is about code, not about requests: those that the process has sent may still arrive. It
// is about one run: a process that is written to disk, killed and restored (CRIU) was seen to end,
// and goes on.
//
// # Use
//
// All functions and methods are safe for concurrent use. [Watcher.Ended] blocks; it takes a
// goroutine, and no thread. Nothing else blocks. Errors of the system are wrapped: errors.Is finds
// [syscall.ECONNREFUSED] in that of Watch if no process shows the name.
package presence
