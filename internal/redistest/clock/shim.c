// The wall clock of one process, ahead of the machine's by the nanoseconds in a file: redis-server is started with this as
// LD_PRELOAD, and chaos writes the file. The monotonic clock stays as it is.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void init(void) {
  const char *path = getenv("HOLDFAST_CHAOS_CLOCK");
  int f = path ? open(path, O_RDONLY) : -1;
  if (f < 0) return;
  void *p = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, f, 0);
  if (p != MAP_FAILED) offset = p;
  close(f);
}

int clock_gettime(clockid_t id, struct timespec *t) {
  int r = syscall(SYS_clock_gettime, id, t);
  if (r == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    long long ns = t->tv_sec * 1000000000LL + t->tv_nsec + *offset;
    t->tv_sec = ns / 1000000000LL;
    t->tv_nsec = ns % 1000000000LL;
  }
  return r;
}

int gettimeofday(struct timeval *t, void *zone) {
  struct timespec s;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &s)) return -1;
  t->tv_sec = s.tv_sec;
  t->tv_usec = s.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec s;
  if (clock_gettime(CLOCK_REALTIME, &s)) return -1;
  if (out) *out = s.tv_sec;
  return s.tv_sec;
}
