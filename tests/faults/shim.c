/* A storage that misbehaves, for the calls of one process on files below given directories.
 *
 * Loaded by LD_PRELOAD it does nothing until `misbehave` is called. Then it counts the calls that its
 * kind of fault can meet and lets those from number `first` to `last` meet it; `recorded` tells how
 * many there were. With `record` it writes down what changes files, in order, for `power_cut.py`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES 65536
#define LISTINGS 64

enum { LOOK = 1, READ = 2, LIST = 4, CREATE = 8, WRITE = 16, RENAME = 32, REMOVE = 64, SYNC = 128 };
enum { NOTHING, FAILS, SLOW, SHORT, STALE };

static struct {
  int effect, error, meets;
  long first, last, calls;
  char roots[4 * PATH_MAX];
  int told, record;
} fault;
static char *path_of[FILES];
static struct { DIR *directory; char hidden[NAME_MAX + 1]; } listing[LISTINGS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* The calls that a fault meets, and the file to which each call is told (NULL for none). */
void misbehave(const char *roots, int effect, int error, int meets, long first, long last,
               const char *told, const char *record) {
  snprintf(fault.roots, sizeof fault.roots, "%s", roots);
  fault.error = error, fault.meets = meets, fault.first = first, fault.last = last;
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  fault.told = told && *told ? (int)syscall(SYS_open, told, flags, 0644) : -1;
  fault.record = record && *record ? (int)syscall(SYS_open, record, flags, 0644) : -1;
  fault.calls = 0, fault.effect = effect;
}

static void put(int file, const void *bytes, size_t size) {
  for (const char *next = bytes; size;) {
    long done = syscall(SYS_write, file, next, size);
    if (done <= 0) abort();
    next += done, size -= done;
  }
}

static int is_ours(const char *path) {
  if (!fault.roots[0] || !path || path[0] != '/') return 0;
  for (const char *root = fault.roots; *root;) {
    size_t size = strcspn(root, ":");
    if (!strncmp(path, root, size) && (path[size] == '/' || !path[size])) return 1;
    root += size + (root[size] == ':');
  }
  return 0;
}

/* Whether this call meets the fault; `errno` is set where it fails. */
static int meets(int class, const char *name, const char *path) {
  if (!is_ours(path)) return 0;
  int hit = 0;
  pthread_mutex_lock(&lock);
  if (fault.effect == NOTHING ? fault.told >= 0 : fault.meets & class) {
    long number = ++fault.calls;
    hit = fault.effect != NOTHING && number >= fault.first && number <= fault.last;
    if (fault.told >= 0 && (hit || fault.effect == NOTHING)) {
      char line[PATH_MAX + 64];
      put(fault.told, line, snprintf(line, sizeof line, "%ld %d %s %s\n", number, class, name, path));
    }
  }
  pthread_mutex_unlock(&lock);
  if (!hit) return 0;
  if (fault.effect == SLOW) return usleep(300000), 0;
  if (fault.effect == FAILS) errno = fault.error;
  return 1;
}

static int fails(int class, const char *name, const char *path) {
  return meets(class, name, path) && fault.effect == FAILS;
}

static void record(char what, const char *path, const char *other, long offset, const void *bytes,
                   size_t size) {
  if (fault.record < 0 || !is_ours(path)) return;
  char line[3 * PATH_MAX];
  int error = errno;
  pthread_mutex_lock(&lock);
  put(fault.record, line,
      snprintf(line, sizeof line, "%c\t%s\t%s\t%ld\t%zu\n", what, path, other, offset, size));
  put(fault.record, bytes, size);
  put(fault.record, "\n", 1);
  pthread_mutex_unlock(&lock);
  errno = error;
}

static void remember(int file, const char *path) {
  if (file >= 0 && file < FILES) free(path_of[file]), path_of[file] = path ? strdup(path) : NULL;
}

static const char *known(int file) { return file >= 0 && file < FILES ? path_of[file] : NULL; }

static const char *at(int directory, const char *name, char *space) {
  if (directory == AT_FDCWD || name[0] == '/') return name;
  const char *above = known(directory);
  if (!above) return NULL;
  snprintf(space, 2 * PATH_MAX, "%s/%s", above, name);
  return space;
}

static int opened(int file, const char *path, int flags) {
  if (file >= 0 && is_ours(path)) {
    remember(file, path);
    if (flags & (O_CREAT | O_TRUNC)) record(flags & O_TRUNC ? 'C' : 'O', path, "", 0, "", 0);
  }
  return file;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { \
  va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
#define OPENED(path) int class = (flags & (O_WRONLY | O_RDWR | O_CREAT)) ? CREATE : LOOK; \
  if (fails(class, "open", path)) return -1

int open(const char *path, int flags, ...) { MODE REAL(open); OPENED(path);
  return opened(real(path, flags, mode), path, flags); }
int open64(const char *path, int flags, ...) { MODE REAL(open64); OPENED(path);
  return opened(real(path, flags, mode), path, flags); }
int openat(int directory, const char *name, int flags, ...) { MODE REAL(openat);
  char space[2 * PATH_MAX]; const char *path = at(directory, name, space); OPENED(path);
  return opened(real(directory, name, flags, mode), path, flags); }
int openat64(int directory, const char *name, int flags, ...) { MODE REAL(openat64);
  char space[2 * PATH_MAX]; const char *path = at(directory, name, space); OPENED(path);
  return opened(real(directory, name, flags, mode), path, flags); }
int close(int file) { REAL(close); remember(file, NULL); return real(file); }

#define FOPEN(name) FILE *name(const char *path, const char *mode) { REAL(name); \
  int writes = mode[0] != 'r'; \
  if (fails(writes ? CREATE : LOOK, "fopen", path)) return NULL; \
  FILE *file = real(path, mode); \
  if (file) opened(fileno(file), path, mode[0] == 'w' ? O_TRUNC : writes ? O_CREAT : 0); \
  return file; }
FOPEN(fopen)
FOPEN(fopen64)
int fclose(FILE *file) { REAL(fclose); const char *path = known(fileno(file));
  int failed = path && fails(WRITE, "fclose", path);
  remember(fileno(file), NULL);
  int done = real(file);
  return failed ? (errno = fault.error, EOF) : done; }
int fflush(FILE *file) { REAL(fflush);
  if (file && known(fileno(file)) && fails(WRITE, "fflush", known(fileno(file)))) return EOF;
  return real(file); }
size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file) { REAL(fwrite);
  const char *path = known(fileno(file));
  if (path && fails(WRITE, "fwrite", path)) return 0;
  long offset = path && fault.record >= 0 ? ftell(file) : 0;
  size_t done = real(bytes, size, count, file);
  if (path) record('W', path, "", offset, bytes, done * size);
  return done; }

static size_t share(int class, const char *name, const char *path, size_t size, int *failed) {
  int met = path && meets(class, name, path);
  *failed = met && fault.effect == FAILS;
  return met && fault.effect == SHORT && size > 1 ? size / 2 : size;
}
ssize_t read(int file, void *to, size_t size) { REAL(read); int failed;
  size = share(READ, "read", known(file), size, &failed);
  return failed ? -1 : real(file, to, size); }
ssize_t pread(int file, void *to, size_t size, off_t from) { REAL(pread); int failed;
  size = share(READ, "pread", known(file), size, &failed);
  return failed ? -1 : real(file, to, size, from); }
ssize_t pread64(int file, void *to, size_t size, off64_t from) { REAL(pread64); int failed;
  size = share(READ, "pread", known(file), size, &failed);
  return failed ? -1 : real(file, to, size, from); }
ssize_t write(int file, const void *from, size_t size) { REAL(write); int failed;
  const char *path = known(file);
  size = share(WRITE, "write", path, size, &failed);
  if (failed) return -1;
  long offset = path && fault.record >= 0 ? lseek(file, 0, SEEK_CUR) : 0;
  ssize_t done = real(file, from, size);
  if (path && done > 0) record('W', path, "", offset, from, done);
  return done; }
int fsync(int file) { REAL(fsync); const char *path = known(file);
  if (path && fails(SYNC, "fsync", path)) return -1;
  int done = real(file);
  if (path && !done) record('S', path, "", 0, "", 0);
  return done; }

#define STAT(name, type) int name(const char *path, struct type *to) { REAL(name); \
  return fails(LOOK, "stat", path) ? -1 : real(path, to); }
#define XSTAT(name, type) int name(int version, const char *path, struct type *to); \
  int name(int version, const char *path, struct type *to) { REAL(name); \
  return fails(LOOK, "stat", path) ? -1 : real(version, path, to); }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
XSTAT(__xstat, stat)
XSTAT(__xstat64, stat64)
XSTAT(__lxstat, stat)
XSTAT(__lxstat64, stat64)
#define STATAT(name, type) \
  int name(int directory, const char *file, struct type *to, int flags) { REAL(name); \
  char space[2 * PATH_MAX]; const char *path = at(directory, file, space); \
  return fails(LOOK, "stat", path) ? -1 : real(directory, file, to, flags); }
STATAT(fstatat, stat)
STATAT(fstatat64, stat64)
int access(const char *path, int mode) { REAL(access);
  return fails(LOOK, "access", path) ? -1 : real(path, mode); }

static DIR *listed(DIR *directory, int stale) {
  if (!directory || !stale) return directory;
  struct { DIR *directory; char hidden[NAME_MAX + 1]; } *free_one = NULL;
  pthread_mutex_lock(&lock);
  for (int k = 0; k < LISTINGS && !free_one; k++)
    if (!listing[k].directory) free_one = (void *)&listing[k];
  if (free_one) {
    free_one->directory = directory, free_one->hidden[0] = 0;
    static struct dirent *(*next)(DIR *);
    if (!next) next = dlsym(RTLD_NEXT, "readdir");
    for (struct dirent *entry; (entry = next(directory));)
      if (entry->d_name[0] != '.' && strcmp(entry->d_name, free_one->hidden) > 0)
        strcpy(free_one->hidden, entry->d_name);
    rewinddir(directory);
  }
  pthread_mutex_unlock(&lock);
  return directory;
}
DIR *opendir(const char *path) { REAL(opendir);
  int met = meets(LIST, "opendir", path);
  if (met && fault.effect == FAILS) return NULL;
  DIR *directory = real(path);
  if (directory && is_ours(path)) remember(dirfd(directory), path);
  return listed(directory, met && fault.effect == STALE); }
DIR *fdopendir(int file) { REAL(fdopendir);
  int met = known(file) && meets(LIST, "opendir", known(file));
  if (met && fault.effect == FAILS) return NULL;
  return listed(real(file), met && fault.effect == STALE); }
int closedir(DIR *directory) { REAL(closedir);
  pthread_mutex_lock(&lock);
  for (int k = 0; k < LISTINGS; k++)
    if (listing[k].directory == directory) listing[k].directory = NULL;
  pthread_mutex_unlock(&lock);
  remember(dirfd(directory), NULL);
  return real(directory); }
static int is_hidden(DIR *directory, const char *name) {
  for (int k = 0; k < LISTINGS; k++)
    if (listing[k].directory == directory && !strcmp(listing[k].hidden, name)) return 1;
  return 0;
}
#define READDIR(name, type) struct type *name(DIR *directory) { REAL(name); \
  const char *path = known(dirfd(directory)); \
  if (path && fails(READ, "readdir", path)) return NULL; \
  struct type *entry = real(directory); \
  while (entry && is_hidden(directory, entry->d_name)) entry = real(directory); \
  return entry; }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

#define CHANGED(class, name, path, call, what, other) \
  if (fails(class, name, path)) return -1; \
  int done = call; \
  if (!done) record(what, path, other, 0, "", 0); \
  return done
int mkdir(const char *path, mode_t mode) { REAL(mkdir);
  CHANGED(CREATE, "mkdir", path, real(path, mode), 'M', ""); }
int rmdir(const char *path) { REAL(rmdir);
  CHANGED(REMOVE, "rmdir", path, real(path), 'D', ""); }
int unlink(const char *path) { REAL(unlink);
  CHANGED(REMOVE, "unlink", path, real(path), 'U', ""); }
int unlinkat(int directory, const char *name, int flags) { REAL(unlinkat);
  char space[2 * PATH_MAX]; const char *path = at(directory, name, space);
  CHANGED(REMOVE, "unlink", path, real(directory, name, flags), flags & AT_REMOVEDIR ? 'D' : 'U', ""); }
int rename(const char *path, const char *target) { REAL(rename);
  CHANGED(RENAME, "rename", path, real(path, target), 'R', target); }
int renameat(int from, const char *name, int to, const char *target) { REAL(renameat);
  char space[2 * PATH_MAX], other[2 * PATH_MAX];
  const char *path = at(from, name, space), *goal = at(to, target, other);
  CHANGED(RENAME, "rename", path, real(from, name, to, target), 'R', goal ? goal : ""); }
