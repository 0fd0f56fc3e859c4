/* The document is written by hand in openapi.json and built in as it is. */
#include "daemon/api/api.h"

/* clang-format off */
__asm__(".section .rodata\n"
	".global api_openapi\n"
	".global api_openapi_len\n"
	"api_openapi:\n"
	".incbin \"daemon/api/openapi.json\"\n"
	"api_openapi_end:\n"
	".balign 8\n"
	"api_openapi_len:\n"
	".quad api_openapi_end - api_openapi\n"
	".previous\n");
/* clang-format on */
