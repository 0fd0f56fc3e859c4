/* A runsc that answers questions like the real one, and says a lot instead of running. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc == 2)
		return execv("/usr/bin/runsc", argv);
	for (int i = 0; i < LINES; i++)
		dprintf(i % 2 ? 2 : 3, "noise %d \033[31m%s\n", i,
		        "of a program that fails to start");
	dprintf(2, "the very last words\n");
	return 1;
}
