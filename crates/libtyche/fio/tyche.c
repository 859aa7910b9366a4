/*
 * fio engine "tyche": load on an export of a Tyche target, straight from fio, without a block
 * device or the kernel's block layer in the way.
 *
 * Licence: this file is part of Tyche, and yours under MIT or Apache-2.0 like the rest of it. It
 * includes headers of fio, which are under the GNU General Public License, version 2, and is of no
 * use without them: the shared object made from both is a work based on fio, and is for you to
 * build (`cargo xtask fio-engine`) and use; whoever hands it on has to do so under fio's licence,
 * with this file under MIT. None of fio's code is part of Tyche.
 *
 * One job is one session with one export, or one queue of a session that several jobs share. It is
 * opened in the job's own process or thread (init), never in fio's parent. The parent needs the
 * size of the export: it gets it from a session of its own, which is closed again. fio's buffers
 * are one registered buffer of the volume, so with block sizes of whole pages no data are copied.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"

#include "tyche.h"
#include "engine_options.h"

/* Longest wait for completions between two checks whether fio wants to end. */
#define WAIT_MS 1000
/* Longest wait for the other jobs of a session, in seconds: less than a target waits for a host that
 * says nothing. */
#define OTHERS_S 2
/* Characters of a message from the library. */
#define MESSAGE_MAX 512

/* A job's session, in td->io_ops_data. */
struct session {
	tyche_volume *volume;
	/* fio's buffers, once allocated. */
	void *memory;
	/* The completions of the last getevents. */
	tyche_completion *done;
	/* Whether the job has counters of its own: not if it joined the session of another in queue
	 * mode, where they are the session's. */
	bool counts;
};

/* fio's thread_data has an error number and a message that is printed in the end. */
static int fail(struct thread_data *td, int error, const char *what)
{
	log_err("fio: tyche: %s\n", what);
	td_verror(td, error, "tyche");
	return 1;
}

static int add_links(tyche_options *o, const char *links)
{
	char *list = strdup(links), *rest = list, *name;
	int ret = list ? 0 : -ENOMEM;

	while (!ret && (name = strsep(&rest, ",")))
		if (*name)
			ret = tyche_options_add_link(o, name);
	free(list);
	return ret;
}

static int set_fcoe(tyche_options *o, const struct tyche_fio_options *eo)
{
	int ret = tyche_options_set_fcoe(o, true);

	if (!ret)
		ret = tyche_options_set_fcoe_mode(o, eo->fcoe_mode);
	if (!ret)
		ret = tyche_options_set_e_d_tov_ms(o, eo->e_d_tov_ms);
	if (!ret && eo->wwpn)
		ret = tyche_options_set_wwpn(o, eo->wwpn);
	return ret;
}

static const char *export_of(struct thread_data *td)
{
	struct tyche_fio_options *eo = td->eo;

	return eo->export ? eo->export : td->files[0]->file_name;
}

/*
 * Opens a session with that number of queues and the job's options. Returns 0, or 1 after reporting
 * the error to fio.
 */
static int open_volume(struct thread_data *td, unsigned int queues, tyche_volume **volume)
{
	struct tyche_fio_options *eo = td->eo;
	unsigned int queue_size = eo->queue_size ? eo->queue_size : td->o.iodepth;
	char message[MESSAGE_MAX] = "an option makes no sense";
	tyche_options *o;
	int ret;

	if (td->o.nr_files != 1)
		return fail(td, EINVAL, "a job has one export: nrfiles and several filenames are not for it");
	o = tyche_options_new(export_of(td));
	if (!o)
		return fail(td, EINVAL, "the export's name makes no sense");
	ret = tyche_options_set_mode(o, eo->mode);
	if (!ret && eo->fcoe)
		ret = set_fcoe(o, eo);
	if (!ret)
		ret = tyche_options_set_queues(o, queues);
	if (!ret)
		ret = tyche_options_set_ethertype(o, eo->ethertype);
	if (!ret)
		ret = tyche_options_set_channels(o, eo->channels);
	if (!ret)
		ret = tyche_options_set_qdisc(o, eo->qdisc);
	if (!ret)
		ret = tyche_options_set_queue_size(o, queue_size > 1024 ? 1024 : queue_size);
	if (!ret)
		ret = tyche_options_set_spin_us(o, eo->spin_us);
	if (!ret)
		ret = tyche_options_set_batch(o, eo->batch);
	if (!ret)
		ret = tyche_options_set_checksum(o, eo->checksum);
	if (!ret && eo->target_key)
		ret = tyche_options_set_target_key(o, eo->target_key);
	if (!ret && eo->key)
		ret = tyche_options_set_key(o, eo->key);
	if (!ret)
		ret = tyche_options_set_read_only(o, !(td_write(td) || td_trim(td)));
	if (!ret && eo->host)
		ret = tyche_options_set_host(o, eo->host);
	if (!ret && eo->link)
		ret = add_links(o, eo->link);
	if (!ret)
		ret = tyche_open(o, volume, message, sizeof(message));
	tyche_options_free(o);
	return ret ? fail(td, -ret, message) : 0;
}

/* A session that further jobs may join: it has queues that are not open yet. */
struct shared {
	struct shared *next;
	char *export;
	tyche_volume *volume;
	unsigned int left;
};

static struct shared *all_shared;
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t shared_changed = PTHREAD_COND_INITIALIZER;

/*
 * Waits until all queues of the session are open. fio starts a job's clock when its engine is
 * ready: jobs that ran one after the other would not share the link that they are to share.
 */
static void wait_for_others(struct shared *it)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += OTHERS_S;
	while (it->left)
		if (pthread_cond_timedwait(&shared_changed, &shared_lock, &until))
			break;
}

/*
 * Opens a queue of a session of other jobs, or a new session. Returns 0, or 1 after an error;
 * `joined` says which.
 */
static int open_queue(struct thread_data *td, tyche_volume **volume, bool *joined)
{
	struct tyche_fio_options *eo = td->eo;
	const char *export = export_of(td);
	char message[MESSAGE_MAX] = "no queue";
	struct shared *it;
	int ret = 0;

	*joined = false;
	if (eo->queues == 1)
		return open_volume(td, 1, volume);
	if (!td->o.use_thread)
		return fail(td, EINVAL, "jobs that share a session are threads: add thread=1");
	pthread_mutex_lock(&shared_lock);
	for (it = all_shared; it; it = it->next)
		if (it->left && !strcmp(it->export, export))
			break;
	*joined = it;
	if (it) {
		ret = tyche_open_queue(it->volume, volume, message, sizeof(message));
		ret = ret ? fail(td, -ret, message) : 0;
		it->left -= !ret;
	} else if (!(it = calloc(1, sizeof(*it))) || !(it->export = strdup(export))) {
		free(it);
		ret = fail(td, ENOMEM, "no memory");
	} else if (open_volume(td, eo->queues, volume)) {
		free(it->export);
		free(it);
		ret = 1;
	} else {
		it->volume = *volume;
		it->left = eo->queues - 1;
		it->next = all_shared;
		all_shared = it;
	}
	if (!ret) {
		pthread_cond_broadcast(&shared_changed);
		wait_for_others(it);
	}
	pthread_mutex_unlock(&shared_lock);
	return ret;
}

/* Keeps further jobs from joining a session through a volume that is being closed. */
static void close_queue(tyche_volume *volume)
{
	struct shared *it;

	pthread_mutex_lock(&shared_lock);
	for (it = all_shared; it; it = it->next)
		if (it->volume == volume)
			it->left = 0;
	pthread_cond_broadcast(&shared_changed);
	pthread_mutex_unlock(&shared_lock);
	tyche_close(volume);
}

/* Counters for the file: those that the library lacks for this kind of link are left out. */
static const char *const counter_names[] = {
	"rx_frames", "tx_frames", "retransmitted", "batches", "batch_entries", "batch_sizes",
	"udp_trains_sent", "udp_train_frames_sent", "udp_trains_received",
	"udp_train_frames_received",
};

/* Appends the job's counters to the file: an object in a line, written by one call. */
static void write_counters(struct thread_data *td, tyche_volume *volume)
{
	struct tyche_fio_options *eo = td->eo;
	char line[1024];
	size_t len = 0;
	uint64_t value;
	FILE *file;

	for (size_t i = 0; i < sizeof(counter_names) / sizeof(*counter_names); i++)
		if (!tyche_get_counter(volume, counter_names[i], &value))
			len += snprintf(line + len, sizeof(line) - len, "%c\"%s\":%llu",
					len ? ',' : '{', counter_names[i],
					(unsigned long long)value);
	file = fopen(eo->counters, "a");
	if (!file) {
		fail(td, errno, "cannot write the counters' file");
		return;
	}
	fprintf(file, "%s}\n", len ? line : "{");
	fclose(file);
}

/* The one hook that runs in fio's parent as well, where there is no session yet. */
static int tyche_get_file_size(struct thread_data *td, struct fio_file *f)
{
	struct session *s = td->io_ops_data;
	tyche_volume *volume = s ? s->volume : NULL;
	tyche_geometry geometry;
	int ret;

	if (fio_file_size_known(f))
		return 0;
	if (!volume && open_volume(td, 1, &volume))
		return 1;
	ret = tyche_get_geometry(volume, &geometry);
	if (!s)
		tyche_close(volume);
	if (ret)
		return fail(td, -ret, "the export has no size");
	f->real_file_size = geometry.size;
	fio_file_set_size_known(f);
	return 0;
}

static int tyche_init(struct thread_data *td)
{
	struct tyche_fio_options *eo = td->eo;
	struct session *s = calloc(1, sizeof(*s));
	bool joined;

	if (!s)
		return fail(td, ENOMEM, "no memory");
	s->done = calloc(td->o.iodepth, sizeof(*s->done));
	if (!s->done || open_queue(td, &s->volume, &joined)) {
		free(s->done);
		free(s);
		return 1;
	}
	s->counts = eo->counters && !(joined && eo->mode == TYCHE_QUEUE);
	td->io_ops_data = s;
	return 0;
}

static void tyche_cleanup(struct thread_data *td)
{
	struct session *s = td->io_ops_data;

	if (!s)
		return;
	if (s->counts)
		write_counters(td, s->volume);
	close_queue(s->volume);
	free(s->done);
	free(s);
	td->io_ops_data = NULL;
}

static int tyche_iomem_alloc(struct thread_data *td, size_t len)
{
	struct session *s = td->io_ops_data;

	s->memory = tyche_buffer_alloc(s->volume, len);
	td->orig_buffer = s->memory;
	return s->memory ? 0 : 1;
}

/* On some error paths, fio calls this after cleanup; then the buffer was freed with the volume. */
static void tyche_iomem_free(struct thread_data *td)
{
	struct session *s = td->io_ops_data;

	if (s) {
		tyche_buffer_free(s->volume, s->memory);
		s->memory = NULL;
	}
	td->orig_buffer = NULL;
}

static enum fio_q_status tyche_queue(struct thread_data *td, struct io_u *io_u)
{
	struct session *s = td->io_ops_data;
	uint64_t token = (uintptr_t)io_u;
	int ret;

	fio_ro_check(td, io_u);
	switch (io_u->ddir) {
	case DDIR_READ:
		ret = tyche_read(s->volume, io_u->xfer_buf, io_u->xfer_buflen, io_u->offset, token);
		break;
	case DDIR_WRITE:
		ret = tyche_write(s->volume, io_u->xfer_buf, io_u->xfer_buflen, io_u->offset,
				  td->o.sync_io ? TYCHE_FUA : 0, token);
		break;
	case DDIR_TRIM:
		ret = tyche_discard(s->volume, io_u->xfer_buflen, io_u->offset, token);
		break;
	case DDIR_SYNC:
	case DDIR_DATASYNC:
		ret = tyche_flush(s->volume, token);
		break;
	default:
		ret = -EOPNOTSUPP;
	}
	if (!ret)
		return FIO_Q_QUEUED;
	if (ret == -EAGAIN)
		return FIO_Q_BUSY;
	io_u->error = -ret;
	return FIO_Q_COMPLETED;
}

/*
 * Sends requests only for a job that pauses between them. fio commits every request by itself;
 * those of other jobs are sent by the next getevents, which fio calls as soon as it has no more to
 * submit, so that requests that are ready at the same time share frames.
 */
static int tyche_commit(struct thread_data *td)
{
	struct session *s = td->io_ops_data;
	int ret;

	if (!(td->flags & TD_F_CHECK_RATE) && !td->o.thinktime)
		return 0;
	ret = tyche_poll(s->volume, NULL, 0);
	return ret < 0 ? ret : 0;
}

static int tyche_getevents(struct thread_data *td, unsigned int min, unsigned int max,
			   const struct timespec *timeout)
{
	struct session *s = td->io_ops_data;
	unsigned int wait_ms = WAIT_MS, found = 0;
	int ret;

	if (timeout)
		wait_ms = timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000;
	if (max > td->o.iodepth)
		max = td->o.iodepth;
	do {
		ret = tyche_wait(s->volume, s->done + found, min > found ? min - found : 0,
				 max - found, wait_ms);
		if (ret < 0)
			return ret;
		found += ret;
	} while (found < min && !timeout && !td->terminate);
	return found;
}

static struct io_u *tyche_event(struct thread_data *td, int event)
{
	struct session *s = td->io_ops_data;
	tyche_completion *done = &s->done[event];
	struct io_u *io_u = (struct io_u *)(uintptr_t)done->token;

	io_u->error = -done->result;
	io_u->resid = done->result ? io_u->xfer_buflen : 0;
	return io_u;
}

/* There is no file: the session is the open file. */
static int tyche_open_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int tyche_close_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int tyche_invalidate(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

/* fio finds the engine by this name. */
struct ioengine_ops ioengine = {
	.name = "tyche",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_RAWIO,
	.init = tyche_init,
	.cleanup = tyche_cleanup,
	.queue = tyche_queue,
	.commit = tyche_commit,
	.getevents = tyche_getevents,
	.event = tyche_event,
	.open_file = tyche_open_file,
	.close_file = tyche_close_file,
	.invalidate = tyche_invalidate,
	.get_file_size = tyche_get_file_size,
	.iomem_alloc = tyche_iomem_alloc,
	.iomem_free = tyche_iomem_free,
	.options = options,
	.option_struct_size = sizeof(struct tyche_fio_options),
};
