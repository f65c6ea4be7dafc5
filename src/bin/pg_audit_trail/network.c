/*-------------------------------------------------------------------------
 *
 * network.c
 *		Addresses of clients, and networks that they are in.
 *
 * An IPv6 address may have a zone, "fe80::1%eth0", which is no part of it here.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <arpa/inet.h>
#include <sys/socket.h>

/* How format json shows clients of Unix-domain sockets */
#define LOCAL_HOST	"[local]"

/* Returns the number of bits of an address, or 0 if the text, of len bytes, is none. */
static int
parse_address(const char *text, Size len, unsigned char *bytes)
{
	char		copy[INET6_ADDRSTRLEN];
	const char *zone = memchr(text, '%', len);

	if (zone != NULL)
		len = zone - text;
	if (len >= sizeof(copy))
		return 0;
	memcpy(copy, text, len);
	copy[len] = '\0';
	if (inet_pton(AF_INET, copy, bytes) == 1)
		return 32;
	return inet_pton(AF_INET6, copy, bytes) == 1 ? 128 : 0;
}

/*
 * An address, "10.1.2.3", a network, "10.1.0.0/16", or "local" for Unix-domain sockets.
 * Returns false if it is none of them.
 */
bool
network_parse(Network *network, const char *text)
{
	const Size	len = strcspn(text, "/");
	const char *bits = text + len;

	memset(network, 0, sizeof(Network));
	if (pg_strcasecmp(text, "local") == 0 || strcmp(text, LOCAL_HOST) == 0)
		return true;
	network->address_bits = parse_address(text, len, network->address);
	network->bits = network->address_bits;
	if (*bits == '\0')
		return network->address_bits > 0;
	bits++;
	if (*bits == '\0' || strlen(bits) > 3 || strspn(bits, "0123456789") != strlen(bits))
		return false;
	network->bits = atoi(bits);
	return network->address_bits > 0 && network->bits <= network->address_bits;
}

/* Returns true if a client with that remoteHost is in the network. */
bool
network_has(const Network *network, Text host)
{
	unsigned char address[sizeof(network->address)];
	const int	bytes = network->bits / 8;
	const int	rest = network->bits % 8;

	if (network->address_bits == 0)
		return host.len == strlen(LOCAL_HOST) && memcmp(host.data, LOCAL_HOST, host.len) == 0;
	return parse_address(host.data, host.len, address) == network->address_bits &&
		memcmp(address, network->address, bytes) == 0 &&
		(rest == 0 || ((address[bytes] ^ network->address[bytes]) >> (8 - rest)) == 0);
}
