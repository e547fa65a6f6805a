// Package periodic runs a job once per tick of a schedule in all processes together.
//
// A lock alone does not do that. A process with a slow clock comes when the job is over and the
// lock is free, and runs it again. So the slot is kept, and not only the lock: a record at the
// arbiter, or in Options.Store, has the tick that was run last.
//
// One tick's journey: each process waits for the time of the tick by its own clock, and locks the
// job's key. The first one reads the record, finds that the tick was not run, writes that it runs
// it, and calls the function under the lock. The others find the tick in the record and wait for
// the next one. A job never runs beside itself: while it takes longer than its period, ticks are
// missed.
//
// A job has one time, which a process with a wrong clock does not move: see docs/periodic.md.
package periodic
