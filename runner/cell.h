/*
 * cell.h - the small network of one sandbox: names and addresses.
 *
 *   slirp4netns -- tap0 [router namespace] cell0 -- eth0 [sandbox namespace]
 *
 * The addresses exist in these two namespaces only, so every sandbox has the same.
 */
#ifndef RUNNER_CELL_H
#define RUNNER_CELL_H

#include <stdint.h>

#define CELL_TAP    "tap0"  /* made by slirp4netns */
#define CELL_ROUTER "cell0" /* the router's end of the pair */
#define CELL_INSIDE "eth0"  /* the sandbox's end */

/* A documentation range (RFC 5737): no service anywhere has these, so nothing is hidden by them. */
#define CELL_ROUTER_ADDR UINT32_C(0xc0000201) /* 192.0.2.1 */
#define CELL_INSIDE_ADDR UINT32_C(0xc0000200) /* 192.0.2.0 */
#define CELL_PREFIX      31                   /* two addresses, and none for broadcasts */

/* slirp4netns: its network, and the one address in it that a sandbox may talk to. */
#define CELL_SLIRP_CIDR   "10.0.2.0/24"
#define CELL_SLIRP_ADDR   UINT32_C(0x0a000200)
#define CELL_SLIRP_PREFIX 24
#define CELL_DNS_ADDR     UINT32_C(0x0a000203) /* 10.0.2.3 */
#define CELL_DNS_TEXT     "10.0.2.3"
#define CELL_CONNECTIONS  1024 /* open at once; slirp4netns holds a descriptor for each */
#define CELL_NEW_A_SECOND 250  /* the kernel tracks each for 2 minutes after its end */
#define CELL_NEW_BURST    1000

#endif
