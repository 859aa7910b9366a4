/*
 * Calls every function of tyche.h once: `smoke EXPORT INTERFACE inline|queue tyche|fcoe`. The test
 * c.rs builds and runs it. It ends with 0 if all went as the header says, and names the line
 * that did not.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tyche.h"

#define CHECK(condition)                                                           \
	do {                                                                       \
		if (!(condition)) {                                                \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

#define DEPTH 32
#define BLOCK 4096
#define PATIENCE_MS 30000

/* The options that only one of the protocols has. */
static void options_of_protocol(tyche_options *o, bool fcoe)
{
	if (fcoe) {
		CHECK(tyche_options_set_e_d_tov_ms(o, 100) == -EINVAL);
		CHECK(tyche_options_set_fcoe(o, true) == 0);
		CHECK(tyche_options_set_e_d_tov_ms(o, 100) == 0);
		CHECK(tyche_options_set_e_d_tov_ms(o, 1) == -EINVAL);
		CHECK(tyche_options_set_fcoe_mode(o, 2) == -EINVAL);
		CHECK(tyche_options_set_fcoe_mode(o, TYCHE_FCOE_FABRIC) == 0);
		CHECK(tyche_options_set_fcoe_mode(o, TYCHE_FCOE_VN2VN) == 0);
		CHECK(tyche_options_set_wwpn(o, "20:00") == -EINVAL);
		CHECK(tyche_options_set_wwpn(o, "20:00:02:00:5e:10:00:01") == 0);
	} else {
		CHECK(tyche_options_set_queues(o, 2) == 0);
		CHECK(tyche_options_set_host(o, "6a1ed2f3-0000-4000-8000-000000000001") == 0);
	}
}

static tyche_options *options(const char *export, const char *interface, int mode, bool fcoe)
{
	tyche_options *o = tyche_options_new(export);

	CHECK(o);
	CHECK(tyche_options_add_link(o, interface) == 0);
	CHECK(tyche_options_set_mode(o, mode) == 0);
	CHECK(tyche_options_set_mode(o, 7) == -EINVAL);
	CHECK(tyche_options_set_queues(o, 65) == -EINVAL);
	CHECK(tyche_options_set_queue_size(o, DEPTH) == 0);
	CHECK(tyche_options_set_queue_size(o, 1025) == -EINVAL);
	CHECK(tyche_options_set_queue_size(o, DEPTH) == 0);
	CHECK(tyche_options_set_memory(o, 1 << 20) == 0);
	CHECK(tyche_options_set_spin_us(o, 10) == 0);
	CHECK(tyche_options_set_checksum(o, true) == 0);
	CHECK(tyche_options_set_read_only(o, false) == 0);
	CHECK(tyche_options_set_timeout_ms(o, PATIENCE_MS) == 0);
	CHECK(tyche_options_set_loss_timeout_ms(o, -2) == -EINVAL);
	CHECK(tyche_options_set_loss_timeout_ms(o, 60000) == 0);
	CHECK(tyche_options_set_fast_fail_timeout_ms(o, -2) == -EINVAL);
	CHECK(tyche_options_set_fast_fail_timeout_ms(o, -1) == 0);
	CHECK(tyche_options_set_host(o, "not a UUID") == -EINVAL);
	options_of_protocol(o, fcoe);
	return o;
}

/* Waits for the one request in flight. */
static int end_of(tyche_volume *volume, uint64_t token)
{
	tyche_completion done;

	CHECK(tyche_wait(volume, &done, 1, 1, PATIENCE_MS) == 1);
	CHECK(done.token == token);
	return done.result;
}

static void null_is_refused(tyche_options *o, tyche_volume *volume)
{
	char byte = 0;
	tyche_completion done;
	tyche_geometry geometry;

	CHECK(!tyche_options_new(NULL));
	CHECK(tyche_options_add_link(o, NULL) == -EINVAL);
	CHECK(tyche_options_set_spin_us(NULL, 1) == -EINVAL);
	CHECK(tyche_open(NULL, &volume, NULL, 0) == -EINVAL);
	CHECK(tyche_open(o, NULL, NULL, 0) == -EINVAL);
	CHECK(tyche_get_geometry(NULL, &geometry) == -EINVAL);
	CHECK(tyche_get_geometry(volume, NULL) == -EINVAL);
	uint64_t value;
	CHECK(tyche_get_counter(NULL, "batches", &value) == -EINVAL);
	CHECK(tyche_get_counter(volume, NULL, &value) == -EINVAL);
	CHECK(tyche_get_counter(volume, "batches", NULL) == -EINVAL);
	CHECK(!tyche_buffer_alloc(NULL, 1) && !tyche_buffer_alloc(volume, 0));
	CHECK(!tyche_buffer_alloc(volume, SIZE_MAX));
	CHECK(tyche_read(volume, NULL, BLOCK, 0, 0) == -EINVAL);
	CHECK(tyche_write(volume, NULL, BLOCK, 0, 0, 0) == -EINVAL);
	CHECK(tyche_write(volume, &byte, BLOCK, 0, ~0u, 0) == -EINVAL);
	CHECK(tyche_read(NULL, &byte, 1, 0, 0) == -EINVAL);
	CHECK(tyche_flush(NULL, 0) == -EINVAL);
	CHECK(tyche_discard(NULL, 0, 0, 0) == -EINVAL);
	CHECK(tyche_write_zeroes(NULL, 0, 0, 0, 0) == -EINVAL);
	CHECK(tyche_write_zeroes(volume, 0, 0, 4, 0) == -EINVAL);
	CHECK(tyche_poll(volume, NULL, 1) == -EINVAL);
	CHECK(tyche_poll(NULL, &done, 1) == -EINVAL);
	CHECK(tyche_wait_fd(NULL) == -EINVAL);
	tyche_options_free(NULL);
	tyche_buffer_free(volume, NULL);
	tyche_buffer_free(NULL, NULL);
	tyche_close(NULL);
}

/* Data go out and come back: `memory` holds DEPTH blocks. */
static void round_trip(tyche_volume *volume, unsigned char *memory, size_t skew)
{
	tyche_completion done[DEPTH];
	int found = 0, ret;

	for (int i = 0; i < DEPTH; i++) {
		unsigned char *block = memory + i * BLOCK + skew;

		memset(block, i + 1, BLOCK);
		CHECK(tyche_write(volume, block, BLOCK, (uint64_t)i * BLOCK, 0, i) == 0);
	}
	CHECK(tyche_wait(volume, done, DEPTH, DEPTH, PATIENCE_MS) == DEPTH);
	for (int i = 0; i < DEPTH; i++)
		CHECK(done[i].result == 0 && done[i].token < DEPTH);
	memset(memory, 0, DEPTH * BLOCK);
	for (int i = 0; i < DEPTH; i++)
		CHECK(tyche_read(volume, memory + i * BLOCK + skew, BLOCK, (uint64_t)i * BLOCK,
				 100 + i) == 0);
	while (found < DEPTH) {
		ret = tyche_wait(volume, done, 1, 5, PATIENCE_MS);
		CHECK(ret >= 1 && ret <= 5);
		for (int i = 0; i < ret; i++)
			CHECK(done[i].result == 0 && done[i].token >= 100);
		found += ret;
	}
	for (int i = 0; i < DEPTH * BLOCK; i++)
		CHECK(memory[i + skew] == i / BLOCK + 1);
}

static void other_requests(tyche_volume *volume, const tyche_geometry *geometry)
{
	static unsigned char block[BLOCK];

	memset(block, 0xa5, BLOCK);
	CHECK(tyche_write(volume, block, BLOCK, 0, TYCHE_FUA, 1) == 0 && end_of(volume, 1) == 0);
	CHECK(tyche_flush(volume, UINT64_MAX) == 0 && end_of(volume, UINT64_MAX) == 0);
	CHECK(tyche_write_zeroes(volume, BLOCK, 0, TYCHE_UNMAP, 2) == 0 && end_of(volume, 2) == 0);
	CHECK(tyche_read(volume, block, BLOCK, 0, 3) == 0 && end_of(volume, 3) == 0);
	for (int i = 0; i < BLOCK; i++)
		CHECK(block[i] == 0);
	CHECK(tyche_discard(volume, BLOCK, 0, 4) == 0 && end_of(volume, 4) == 0);
	/* An invalid request is accepted, and ends with an error. */
	CHECK(tyche_read(volume, block, BLOCK, geometry->size, 5) == 0);
	CHECK(end_of(volume, 5) == -EINVAL);
	CHECK(tyche_write(volume, block, BLOCK, geometry->size, 0, 6) == 0);
	CHECK(end_of(volume, 6) == -ENOSPC);
	/* Longer than the memory of the volume, and not registered. */
	CHECK(tyche_read(volume, block, 2 << 20, 0, 7) == -EINVAL);
}

int main(int argc, char **argv)
{
	static unsigned char unregistered[(DEPTH + 1) * BLOCK];
	tyche_volume *volume = NULL;
	tyche_geometry geometry;
	tyche_completion done;
	char error[16] = "";

	CHECK(argc == 5);
	bool fcoe = !strcmp(argv[4], "fcoe");
	int mode = strcmp(argv[3], "queue") ? TYCHE_INLINE : TYCHE_QUEUE;
	tyche_options *o = options(argv[1], "no-such-link", mode, fcoe);
	CHECK(tyche_open(o, &volume, error, sizeof(error)) == -ENODEV);
	CHECK(!volume && strlen(error) == sizeof(error) - 1);
	tyche_options_free(o);

	o = options(argv[1], argv[2], mode, fcoe);
	char why[300] = "";
	int ret = tyche_open(o, &volume, why, sizeof(why));
	if (ret)
		fprintf(stderr, "tyche_open: %d: %s\n", ret, why);
	CHECK(ret == 0 && volume);
	null_is_refused(o, volume);
	tyche_options_free(o);
	CHECK(tyche_get_geometry(volume, &geometry) == 0);
	CHECK(geometry.size == 16 << 20 && geometry.block_size == 4096 && !geometry.read_only);

	unsigned char *registered = tyche_buffer_alloc(volume, (DEPTH + 1) * BLOCK);
	CHECK(registered && (uintptr_t)registered % BLOCK == 0);
	round_trip(volume, registered, 0);
	round_trip(volume, registered, 512);
	tyche_buffer_free(volume, registered);
	registered = tyche_buffer_alloc(volume, BLOCK);
	CHECK(registered);
	round_trip(volume, unregistered, 0);
	other_requests(volume, &geometry);
	CHECK(tyche_poll(volume, &done, 1) == 0 && tyche_poll(volume, NULL, 0) == 0);

	uint64_t frames, entries, sent, none = 1;
	CHECK(tyche_get_counter(volume, "batches", &frames) == 0 && (frames > 0) == !fcoe);
	CHECK(tyche_get_counter(volume, "batch_entries", &entries) == 0 && entries >= frames);
	CHECK(tyche_get_counter(volume, "tx_frames", &sent) == 0 && sent > 0 && sent >= frames);
	const char *own = fcoe ? "fc_stranger" : "malformed_short";
	CHECK(tyche_get_counter(volume, own, &none) == 0 && none == 0);
	CHECK(tyche_get_counter(volume, "no_such_counter", &sent) == -ENOENT);

	tyche_volume *queue = NULL, *third = NULL;
	CHECK(tyche_open_queue(NULL, &queue, NULL, 0) == -EINVAL);
	CHECK(tyche_open_queue(volume, NULL, NULL, 0) == -EINVAL);
	ret = tyche_open_queue(volume, &queue, why, sizeof(why));
	CHECK(ret == (fcoe ? -EINVAL : 0));
	CHECK(tyche_open_queue(volume, &third, why, sizeof(why)) == -EINVAL && !third);
	if (queue)
		round_trip(queue, unregistered, 0);
	tyche_close(queue);
	round_trip(volume, unregistered, 0);

	if (mode == TYCHE_QUEUE) {
		CHECK(tyche_read(volume, registered, BLOCK, 0, 8) == 0);
		while (tyche_poll(volume, &done, 1) == 0) {
			struct pollfd fd = { .fd = tyche_wait_fd(volume), .events = POLLIN };
			CHECK(fd.fd >= 0 && poll(&fd, 1, PATIENCE_MS) == 1);
		}
		CHECK(done.token == 8 && done.result == 0);
	} else {
		CHECK(tyche_wait_fd(volume) == -EOPNOTSUPP);
	}
	/* Closing with requests in flight, into both kinds of memory. */
	for (int i = 0; i < DEPTH; i++)
		CHECK(tyche_read(volume, i % 2 ? registered : unregistered, BLOCK, 0, i) == 0);
	tyche_close(volume);
	return 0;
}
