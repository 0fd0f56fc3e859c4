#include "fuzz/files.h"

#include "fuzz/fuzz.h"

#include "common/fd.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <unistd.h>

int fuzz_words = STDERR_FILENO;

static void __attribute__((constructor)) keep_words(void)
{
	int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

	if (fd >= 0)
		fuzz_words = fd;
}

static char directory[] = "/run/cloister-fuzz-XXXXXX";
static char file[sizeof(directory) + 8];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void clean_up(void)
{
	(void)nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void prepare(void)
{
	demand(mkdtemp(directory));
	(void)snprintf(file, sizeof(file), "%s/input", directory);
	demand(atexit(clean_up) == 0);
}

const char *input_dir(void)
{
	if (!file[0])
		prepare();
	return directory;
}

const char *input_file(const uint8_t *data, size_t size)
{
	auto_close int fd = -1;

	(void)input_dir();
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	demand(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	return file;
}
