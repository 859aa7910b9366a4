/*
 * Tyche: remote disks over plain Ethernet. The host's side as a library.
 *
 * Open an export, submit requests with tokens of your choice, poll for completions, close. Nothing
 * blocks but tyche_open(), tyche_wait() and tyche_close(). Functions that return an int return a
 * negative error number on failure, and -EINVAL if a pointer is NULL that may not be.
 *
 * A handle is valid from the function that makes it to the one that frees it. A broken invariant
 * of the library ends the process: it never unwinds into its caller.
 *
 * MIT or Apache-2.0. Made from the library's source by cbindgen: change it there.
 */

#ifndef TYCHE_H
#define TYCHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * For writes and zeroes: complete only when on stable storage.
 */
#define TYCHE_FUA 1

/**
 * For zeroes: blocks may be deallocated.
 */
#define TYCHE_UNMAP 2

/**
 * The calling thread drives the session: the shortest path, for one thread that polls.
 */
#define TYCHE_INLINE 0

/**
 * The volume has a thread of its own, to which any number of threads submit requests.
 */
#define TYCHE_QUEUE 1

/**
 * Over FCoE, without a fabric: ports choose their addresses themselves, and talk to each other.
 */
#define TYCHE_FCOE_VN2VN 0

/**
 * Over FCoE, in a fabric: ports log in with a switch for FCoE (FCF), and talk through it.
 */
#define TYCHE_FCOE_FABRIC 1

/**
 * Each request has a frame of its own: the baseline to measure batching against.
 */
#define TYCHE_BATCH_NONE 0

/**
 * Requests that are ready at the same time share a frame; none waits.
 */
#define TYCHE_BATCH_NATURAL 1

/**
 * A frame waits up to 50 microseconds for the number of requests that gave the best throughput
 * lately.
 */
#define TYCHE_BATCH_ADAPTIVE 2

/**
 * Options to open a volume with. Made by tyche_options_new(), freed by tyche_options_free(), used
 * by one thread at a time.
 */
typedef struct tyche_options tyche_options;

/**
 * An open export. Made by tyche_open(), freed by tyche_close(). In queue mode any number of
 * threads may use it at once; in inline mode one at a time: a call during another thread's returns
 * -EBUSY. After a fork(), the child must leave it alone, tyche_close() included.
 */
typedef struct tyche_volume tyche_volume;

/**
 * The properties of a disk.
 */
typedef struct tyche_geometry {
  /**
   * Bytes, a multiple of the block size.
   */
  uint64_t size;
  /**
   * Bytes in a block, 512 or 4096: the unit of offsets and lengths.
   */
  uint32_t block_size;
  /**
   * Requests that modify fail with EROFS.
   */
  bool read_only;
  /**
   * Completed writes may be volatile until the next flush.
   */
  bool write_cache;
  /**
   * Whether discard has an effect.
   */
  bool discard;
  /**
   * Whether seeks take time: the disks are rotational.
   */
  bool rotational;
} tyche_geometry;

/**
 * The completion of a request.
 */
typedef struct tyche_completion {
  /**
   * The token that the request was submitted with.
   */
  uint64_t token;
  /**
   * 0, or a negative error number. After an error the content of a read's buffer is undefined.
   */
  int32_t result;
  /**
   * Zero.
   */
  uint32_t reserved;
} tyche_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Connects to an export and waits for the connection: returns 0 and the volume in *volume, or a
 * negative error number and a sentence in `error`, cut to `error_size` bytes with the final zero.
 * `error` may be NULL. The options remain the caller's.
 */
int tyche_open(const struct tyche_options *options,
               struct tyche_volume **volume,
               char *error,
               size_t error_size);

/**
 * Opens a further queue of a volume's session, for another thread: a volume of its own, with its
 * own requests, completions and buffers, on the same disk. tyche_options_set_queues() says how
 * many there are. Returns as tyche_open(), -EINVAL if all are open.
 */
int tyche_open_queue(const struct tyche_volume *volume,
                     struct tyche_volume **queue,
                     char *error,
                     size_t error_size);

/**
 * Ends the session, waits up to a second for the target's confirmation, and frees the volume and
 * all its registered buffers; NULL does nothing. Completions that have not been polled are lost,
 * and the outcome of requests in flight is unknown: their memory is not touched any more. A
 * session with several open queues goes on, unless this one is in inline mode and has requests in
 * flight. Over FCoE, in inline mode, it ends with its first queue, which waits up to a second
 * until the others are closed.
 */
void tyche_close(struct tyche_volume *volume);

/**
 * The current geometry of the disk; its size may grow while it is open.
 */
int tyche_get_geometry(const struct tyche_volume *volume,
                       struct tyche_geometry *geometry);

/**
 * Allocates a registered buffer, for data without another copy: zeroed, and aligned to 4096 bytes.
 * Requests may use any part of it. Parts that begin at a multiple of 4096 bytes, and whose pages
 * no other request in flight uses, are used in place; others are copied like unregistered memory.
 * NULL if `len` is zero or more than 16 GiB.
 */
void *tyche_buffer_alloc(const struct tyche_volume *volume,
                         size_t len);

/**
 * Frees a registered buffer; NULL does nothing. No request in flight may use it.
 */
void tyche_buffer_free(const struct tyche_volume *volume, void *buffer);

/**
 * Reads `len` bytes at `offset` of the disk into `buffer`, which must be left alone until the
 * request has ended. Any memory will do; a registered buffer is filled in place.
 *
 * Returns 0: the completion comes out of tyche_poll() or tyche_wait() with this token. -EAGAIN:
 * the limit of requests in progress or of memory is reached; poll and try again. -EBUSY: another
 * thread is in a call on this volume, which is in inline mode. -EINVAL: a pointer is NULL, or the
 * request is longer than the volume's memory. The same holds for the requests below.
 */
int tyche_read(const struct tyche_volume *volume,
               void *buffer,
               uint32_t len,
               uint64_t offset,
               uint64_t token);

/**
 * Writes `len` bytes from `buffer` to `offset` of the disk. Memory of a registered buffer must be
 * left alone until the request has ended; other memory is copied before this returns. Flags:
 * TYCHE_FUA.
 */
int tyche_write(const struct tyche_volume *volume,
                const void *buffer,
                uint32_t len,
                uint64_t offset,
                uint32_t flags,
                uint64_t token);

/**
 * Makes every write that has ended before durable.
 */
int tyche_flush(const struct tyche_volume *volume, uint64_t token);

/**
 * Discards the range: its content is no longer needed, and reads may return anything until it is
 * rewritten.
 */
int tyche_discard(const struct tyche_volume *volume,
                  uint32_t len,
                  uint64_t offset,
                  uint64_t token);

/**
 * Zeroes the range: it reads as zeroes from then on. Flags: TYCHE_FUA, TYCHE_UNMAP.
 */
int tyche_write_zeroes(const struct tyche_volume *volume,
                       uint32_t len,
                       uint64_t offset,
                       uint32_t flags,
                       uint64_t token);

/**
 * Takes up to `max` completions and returns how many; never waits. In inline mode this sends
 * submitted requests and handles received frames, also with a `max` of 0: call it a few times a
 * second at least.
 */
int tyche_poll(const struct tyche_volume *volume,
               struct tyche_completion *completions,
               uint32_t max);

/**
 * As tyche_poll(), but waits until `min` requests have ended, or as many as are in flight, or
 * `timeout_ms` milliseconds have passed. If several threads wait, each should wait for one.
 */
int tyche_wait(const struct tyche_volume *volume,
               struct tyche_completion *completions,
               uint32_t min,
               uint32_t max,
               uint32_t timeout_ms);

/**
 * In queue mode, a descriptor that becomes readable when a request has ended: for poll(2) and the
 * like, never to be read or closed. Call this before every sleep, for it arms the descriptor;
 * spurious wake-ups are possible. -EOPNOTSUPP in inline mode: use tyche_wait().
 */
int tyche_wait_fd(const struct tyche_volume *volume);

/**
 * A counter of the session, or of this queue of it in inline mode, by the name that it has in
 * `tyche stats -o json`: those of requests (`reads`, `read_bytes`), of the protocol
 * (`retransmitted`, `batches`), of links (`rx_frames`, `tx_bytes`), and those of the links' kind,
 * such as `udp_trains_sent`, or `fc_aborts` over FCoE. Links are added up. -ENOENT: there is no
 * such counter. -EBUSY: another thread is in a call on this volume.
 */
int tyche_get_counter(const struct tyche_volume *volume,
                      const char *name,
                      uint64_t *value);

/**
 * Options with their defaults, for the export of that name; over FCoE it is WWPN or WWPN:LUN.
 * NULL if the name is invalid. Does not keep the string.
 */
struct tyche_options *tyche_options_new(const char *name);

/**
 * Frees options; NULL does nothing. Volumes opened with them stay open.
 */
void tyche_options_free(struct tyche_options *options);

/**
 * Adds an interface that reaches the target, or "udp:HOST:PORT", "tcp:HOST:PORT" or
 * "rdma:HOST:PORT" where it listens. All are used together; without any, every interface that
 * is up.
 */
int tyche_options_add_link(struct tyche_options *options,
                           const char *interface);

/**
 * Whether to connect by Fibre Channel over Ethernet, on the one interface that is added; off by
 * default. Options that only Tyche's own protocol has must have their defaults then: channels,
 * EtherType, batch, checksum, host, keys, fast fail timeout.
 */
int tyche_options_set_fcoe(struct tyche_options *options,
                           bool fcoe);

/**
 * Over FCoE: the network, TYCHE_FCOE_VN2VN (the default) or TYCHE_FCOE_FABRIC. -EINVAL unless
 * tyche_options_set_fcoe() was called before.
 */
int tyche_options_set_fcoe_mode(struct tyche_options *options,
                                int mode);

/**
 * Over FCoE: name of the port of this end, for access lists of the target; by default it follows
 * from the interface's address. -EINVAL unless tyche_options_set_fcoe() was called before.
 */
int tyche_options_set_wwpn(struct tyche_options *options,
                           const char *wwpn);

/**
 * Over FCoE: E_D_TOV, 50 to 60000, after which it is noticed what is lost; the larger one of both
 * ends counts; 2000 by default. -EINVAL unless tyche_options_set_fcoe() was called before.
 */
int tyche_options_set_e_d_tov_ms(struct tyche_options *options,
                                 uint32_t milliseconds);

/**
 * EtherType of the frames, 0x0600 or higher, the same on both sides; 0x88b5 by default.
 */
int tyche_options_set_ethertype(struct tyche_options *options, uint16_t ethertype);

/**
 * Whether to send through the interface's queueing discipline, so that traffic control (tc)
 * applies; costs some speed, and is off by default.
 */
int tyche_options_set_qdisc(struct tyche_options *options,
                            bool qdisc);

/**
 * The thread that drives the session: TYCHE_INLINE (the default) or TYCHE_QUEUE.
 */
int tyche_options_set_mode(struct tyche_options *options, int mode);

/**
 * Channels for each pair of a local interface and one of the target's, 1 to 16; 1 by default.
 */
int tyche_options_set_channels(struct tyche_options *options,
                               uint8_t channels);

/**
 * Queues of the session, 1 to 64, each for one thread: tyche_open_queue() opens all but the first;
 * 1 by default. Over FCoE up to 16.
 */
int tyche_options_set_queues(struct tyche_options *options,
                             uint8_t queues);

/**
 * The most requests at the target at once, 1 to 1024; 128 by default.
 */
int tyche_options_set_queue_size(struct tyche_options *options, uint16_t queue_size);

/**
 * Bytes of the volume's own memory, through which data of unregistered buffers are copied; 64 MiB
 * by default. No single request may be longer.
 */
int tyche_options_set_memory(struct tyche_options *options,
                             size_t bytes);

/**
 * The longest spin for more work before sleeping; 0, the default: never.
 */
int tyche_options_set_spin_us(struct tyche_options *options, uint32_t microseconds);

/**
 * The batching of requests in frames: TYCHE_BATCH_ADAPTIVE (the default), TYCHE_BATCH_NATURAL or
 * TYCHE_BATCH_NONE.
 */
int tyche_options_set_batch(struct tyche_options *options,
                            int policy);

/**
 * Whether checksums cover data; they do by default. Headers and commands are always covered.
 */
int tyche_options_set_checksum(struct tyche_options *options,
                               bool checksum);

/**
 * The target's key, as `tyche key show` prints it there. With it, every frame is encrypted and
 * authenticated, and both ends have to prove who they are. By default it is the key that this
 * machine knows for the target (`tyche key known`), and if it knows none, frames are in the clear.
 * A machine that knows keys of targets wants exports as TARGET/EXPORT.
 */
int tyche_options_set_target_key(struct tyche_options *options,
                                 const char *key);

/**
 * File of the secret key of this end, if the target has a key; /etc/tyche/key by default.
 */
int tyche_options_set_key(struct tyche_options *options, const char *file);

/**
 * Whether to open the export read-only.
 */
int tyche_options_set_read_only(struct tyche_options *options, bool read_only);

/**
 * The longest time to open; 10000 by default.
 */
int tyche_options_set_timeout_ms(struct tyche_options *options, uint32_t milliseconds);

/**
 * The time that requests wait for a lost target before they fail with EIO; -1: for ever; 600000 by
 * default.
 */
int tyche_options_set_loss_timeout_ms(struct tyche_options *options,
                                      int64_t milliseconds);

/**
 * The time that requests wait for a lost target before they fail with EIO, while the session goes
 * on until the loss timeout, which must be longer; -1, the default: as long as that. Not over
 * FCoE.
 */
int tyche_options_set_fast_fail_timeout_ms(struct tyche_options *options,
                                           int64_t milliseconds);

/**
 * The UUID of the host to present, instead of this machine's.
 */
int tyche_options_set_host(struct tyche_options *options, const char *uuid);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TYCHE_H */
