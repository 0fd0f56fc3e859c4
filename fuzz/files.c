#include "fuzz/files.h"

#include "fuzz/fuzz.h"

#include "common/fd.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

static char directory[] = "/run/cloister-fuzz-XXXXXX";
static char file[sizeof(directory) + 8];

static void clean_up(void)
{
	(void)unlink(file);
	(void)rmdir(directory);
}

static void prepare(void)
{
	demand(mkdtemp(directory));
	(void)snprintf(file, sizeof(file), "%s/input", directory);
	demand(atexit(clean_up) == 0);
}

const char *input_file(const uint8_t *data, size_t size)
{
	auto_close int fd = -1;

	if (!file[0])
		prepare();
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	demand(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	return file;
}
