/*
 * The options of the fio engine "tyche", for tyche.c, under the licence that is stated there.
 */
struct tyche_fio_options {
	void *pad; /* fio takes an option at offset 0 for none */
	char *export;
	char *link;
	char *host;
	unsigned int fcoe;
	unsigned int fcoe_mode;
	char *wwpn;
	unsigned int e_d_tov_ms;
	unsigned int channels;
	unsigned int queues;
	unsigned int ethertype;
	unsigned int qdisc;
	unsigned int mode;
	unsigned int queue_size;
	unsigned int spin_us;
	unsigned int batch;
	unsigned int checksum;
	char *target_key;
	char *key;
	char *counters;
};

#define ENGINE_OPTION .category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID

static struct fio_option options[] = {
	{
		.name = "export",
		.lname = "Name of the export",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct tyche_fio_options, export),
		.help = "Name of the export, over FCoE WWPN[:LUN]; by default the job's filename",
		ENGINE_OPTION,
	},
	{
		.name = "link",
		.lname = "Interfaces",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct tyche_fio_options, link),
		.help = "Interfaces, tcp:HOST:PORT or udp:HOST:PORT, with commas between them",
		ENGINE_OPTION,
	},
	{
		.name = "fcoe",
		.lname = "Fibre Channel over Ethernet",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct tyche_fio_options, fcoe),
		.help = "Connect by Fibre Channel over Ethernet",
		.def = "0",
		ENGINE_OPTION,
	},
	{
		.name = "fcoe_mode",
		.lname = "Network of FCoE",
		.type = FIO_OPT_STR,
		.off1 = offsetof(struct tyche_fio_options, fcoe_mode),
		.help = "Over FCoE: whether ports talk to each other, or through a fabric",
		.def = "vn2vn",
		.posval = {
			{ .ival = "vn2vn", .oval = TYCHE_FCOE_VN2VN, .help = "to each other" },
			{ .ival = "fabric", .oval = TYCHE_FCOE_FABRIC, .help = "through a fabric" },
		},
		ENGINE_OPTION,
	},
	{
		.name = "wwpn",
		.lname = "Name of the port",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct tyche_fio_options, wwpn),
		.help = "Over FCoE: name of the port of this end, for access lists",
		ENGINE_OPTION,
	},
	{
		.name = "e_d_tov_ms",
		.lname = "E_D_TOV in milliseconds",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct tyche_fio_options, e_d_tov_ms),
		.help = "Over FCoE: milliseconds after which it is noticed what is lost",
		.def = "2000",
		.minval = 50,
		.maxval = 60000,
		ENGINE_OPTION,
	},
	{
		.name = "channels",
		.lname = "Channels",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct tyche_fio_options, channels),
		.help = "Channels for each pair of interfaces",
		.def = "1",
		.minval = 1,
		.maxval = 16,
		ENGINE_OPTION,
	},
	{
		.name = "queues",
		.lname = "Queues of a session",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct tyche_fio_options, queues),
		.help = "So many jobs with the same export share a session, each with a queue; needs thread",
		.def = "1",
		.minval = 1,
		.maxval = 64,
		ENGINE_OPTION,
	},
	{
		.name = "ethertype",
		.lname = "EtherType",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct tyche_fio_options, ethertype),
		.help = "EtherType of the frames, the same as the target's",
		.def = "0x88b5",
		.minval = 0x600,
		.maxval = 0xffff,
		ENGINE_OPTION,
	},
	{
		.name = "qdisc",
		.lname = "Use the queueing discipline",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct tyche_fio_options, qdisc),
		.help = "Send through the interface's queueing discipline, so that tc applies",
		.def = "0",
		ENGINE_OPTION,
	},
	{
		.name = "host_id",
		.lname = "UUID of the host",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct tyche_fio_options, host),
		.help = "Be this host rather than this machine",
		ENGINE_OPTION,
	},
	{
		.name = "mode",
		.lname = "Who drives the session",
		.type = FIO_OPT_STR,
		.off1 = offsetof(struct tyche_fio_options, mode),
		.help = "Who drives the session: fio's thread, or one of the session's own",
		.def = "inline",
		.posval = {
			{ .ival = "inline", .oval = TYCHE_INLINE, .help = "fio's thread" },
			{ .ival = "queue", .oval = TYCHE_QUEUE, .help = "a thread of its own" },
		},
		ENGINE_OPTION,
	},
	{
		.name = "queue_size",
		.lname = "Requests with the target",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct tyche_fio_options, queue_size),
		.help = "Requests with the target at once; 0: as many as iodepth says",
		.def = "0",
		.minval = 0,
		.maxval = 1024,
		ENGINE_OPTION,
	},
	{
		.name = "spin_us",
		.lname = "Microseconds to spin",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct tyche_fio_options, spin_us),
		.help = "Longest time to spin before sleeping, in microseconds",
		.def = "0",
		ENGINE_OPTION,
	},
	{
		.name = "batch",
		.lname = "How requests share frames",
		.type = FIO_OPT_STR,
		.off1 = offsetof(struct tyche_fio_options, batch),
		.help = "How requests share frames",
		.def = "adaptive",
		.posval = {
			{ .ival = "none", .oval = TYCHE_BATCH_NONE, .help = "never" },
			{ .ival = "natural", .oval = TYCHE_BATCH_NATURAL, .help = "those ready together" },
			{ .ival = "adaptive", .oval = TYCHE_BATCH_ADAPTIVE, .help = "waiting for more" },
		},
		ENGINE_OPTION,
	},
	{
		.name = "checksum",
		.lname = "Checksums of data",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct tyche_fio_options, checksum),
		.help = "Cover data with checksums on their way",
		.def = "1",
		ENGINE_OPTION,
	},
	{
		.name = "target_key",
		.lname = "Key of the target",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct tyche_fio_options, target_key),
		.help = "The target's key: frames are encrypted and authenticated then",
		ENGINE_OPTION,
	},
	{
		.name = "key",
		.lname = "File of the own key",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct tyche_fio_options, key),
		.help = "File of this host's secret key",
		.def = "/etc/tyche/key",
		ENGINE_OPTION,
	},
	{
		.name = "counters",
		.lname = "File for counters",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct tyche_fio_options, counters),
		.help = "File to which each job appends its session's counters in the end, as JSON",
		ENGINE_OPTION,
	},
	{ .name = NULL },
};
