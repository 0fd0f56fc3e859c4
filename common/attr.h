/* attr.h - compiler attributes by short names. */
#ifndef COMMON_ATTR_H
#define COMMON_ATTR_H

#define printf_like(fmt, args) __attribute__((format(printf, fmt, args)))
#define must_check             __attribute__((warn_unused_result))
#define nonnull_args(...)      __attribute__((nonnull(__VA_ARGS__)))
#define no_return              __attribute__((noreturn))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
