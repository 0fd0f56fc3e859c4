#include "fuzz/root.h"

#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/stat.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	void (*fn)(const uint8_t *data, size_t size); /* NULL = there is nothing to do */
	const uint8_t *data;
	size_t size;
} work = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER };

static void enter_root(void)
{
	const char *dir = input_dir();
	sigset_t all;

	(void)sigemptyset(&all);
	(void)sigaddset(&all, SIGALRM); /* the fuzzer's */
	(void)sigaddset(&all, SIGINT);
	demand(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0 && unshare(CLONE_NEWNS) == 0);
	demand(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	demand(mount("none", dir, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
	             "size=8m,nr_inodes=2000") == 0);
	demand(chroot(dir) == 0 && chdir("/") == 0);
	(void)umask(022);
}

static void *live(void *ctx)
{
	(void)ctx;
	enter_root();
	pthread_mutex_lock(&work.lock);
	for (;;) {
		while (!work.fn)
			pthread_cond_wait(&work.changed, &work.lock);
		work.fn(work.data, work.size);
		work.fn = NULL;
		pthread_cond_broadcast(&work.changed);
	}
	return NULL;
}

static void begin(void)
{
	static bool begun;
	pthread_t thread;

	if (begun)
		return;
	begun = true;
	(void)input_dir();
	demand(pthread_create(&thread, NULL, live, NULL) == 0);
}

void in_own_root(void (*fn)(const uint8_t *data, size_t size), const uint8_t *data, size_t size)
{
	begin();
	pthread_mutex_lock(&work.lock);
	work.data = data;
	work.size = size;
	work.fn = fn;
	pthread_cond_broadcast(&work.changed);
	while (work.fn)
		pthread_cond_wait(&work.changed, &work.lock);
	pthread_mutex_unlock(&work.lock);
}
