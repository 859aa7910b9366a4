//! Options from C.

use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

use tyche_proto::BatchPolicy;
use uuid::Uuid;

use crate::options::{Mode, Options};

/// The calling thread drives the session: the shortest way, for one thread that polls.
pub const TYCHE_INLINE: c_int = 0;
/// The volume has a thread of its own, which any number of threads hand requests to.
pub const TYCHE_QUEUE: c_int = 1;

/// Each request has a frame of its own: what batching is measured against.
pub const TYCHE_BATCH_NONE: c_int = 0;
/// Requests that are ready at the same time share a frame; none waits.
pub const TYCHE_BATCH_NATURAL: c_int = 1;
/// A frame waits up to 50 microseconds for as many requests as gave the best throughput lately.
pub const TYCHE_BATCH_ADAPTIVE: c_int = 2;

/// How to open a volume. Made by tyche_options_new(), freed by tyche_options_free(), used by one
/// thread at a time.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct tyche_options {
    pub(super) options: Options,
}

/// The text at `text`, if there is one and it is UTF-8.
///
/// # Safety
/// `text` is null, or a string that ends in a zero byte and lives as long as the result.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and a string as the caller of this function promises.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Changes an option; `-EINVAL` if the pointer is null, or if `change` does not like the value and
/// says so with `false`: then the options stay as they were.
///
/// # Safety
/// `options` is null or came from `tyche_options_new`, and nobody else uses it meanwhile.
unsafe fn set(options: *mut tyche_options, change: impl FnOnce(&mut Options) -> bool) -> c_int {
    // SAFETY: valid and unshared as the caller of this function promises, or null.
    let options = unsafe { options.as_mut() };
    let Some(options) = options else { return -libc::EINVAL };
    let mut changed = options.options.clone();
    if !change(&mut changed) {
        return -libc::EINVAL;
    }
    options.options = changed;
    0
}

/// Options with their defaults, for the export of that name. NULL if the name is none. Does not
/// keep the string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_new(name: *const c_char) -> *mut tyche_options {
    // SAFETY: null or a string, as the header demands.
    match unsafe { text(name) } {
        Some(name) => Box::into_raw(Box::new(tyche_options { options: Options::new(name) })),
        None => std::ptr::null_mut(),
    }
}

/// Frees options; NULL does nothing. Volumes opened with them stay open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_free(options: *mut tyche_options) {
    if !options.is_null() {
        // SAFETY: made by `Box::into_raw` in `tyche_options_new` and freed once, as the header
        // demands.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Adds an interface that reaches the target, or "tcp:HOST:PORT" where it listens. Without any, the
/// only interface that is up is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_add_link(
    options: *mut tyche_options,
    interface: *const c_char,
) -> c_int {
    // SAFETY: both as the header demands.
    unsafe {
        let name = text(interface).filter(|name| !name.is_empty());
        set(options, |it| {
            it.links.extend(name.map(str::to_owned));
            name.is_some()
        })
    }
}

/// EtherType of the frames, 0x0600 or higher, the same on both sides; 0x88b5 by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_ethertype(
    options: *mut tyche_options,
    ethertype: u16,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.ethertype = ethertype;
            ethertype >= 0x600
        })
    }
}

/// Whether to send through the interface's queueing discipline, so that traffic control (tc)
/// applies; costs some speed, and is off by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_qdisc(
    options: *mut tyche_options,
    qdisc: bool,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.qdisc = qdisc;
            true
        })
    }
}

/// Who drives the session: TYCHE_INLINE (the default) or TYCHE_QUEUE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_mode(options: *mut tyche_options, mode: c_int) -> c_int {
    let mode = match mode {
        TYCHE_INLINE => Some(Mode::Inline),
        TYCHE_QUEUE => Some(Mode::Queue),
        _ => None,
    };
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.mode = mode.unwrap_or(it.mode);
            mode.is_some()
        })
    }
}

/// Requests with the target at once, 1 to 1024; 128 by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_queue_size(
    options: *mut tyche_options,
    queue_size: u16,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.queue_size = queue_size;
            (1..=1024).contains(&queue_size)
        })
    }
}

/// Bytes of memory of the volume's own, which data of unregistered buffers pass through; 64 MiB by
/// default. No single request may be longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_memory(
    options: *mut tyche_options,
    bytes: usize,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.memory = bytes;
            bytes > 0
        })
    }
}

/// The longest time to spin for more work before sleeping; 0, the default: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_spin_us(
    options: *mut tyche_options,
    microseconds: u32,
) -> c_int {
    let spin = Duration::from_micros(microseconds.into());
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.spin = spin;
            true
        })
    }
}

/// Whether to hand work over between threads, as the first Tyche did: one receives, and with
/// TYCHE_QUEUE another completes. Slower, and there to measure by how much; off by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_hand_over(
    options: *mut tyche_options,
    hand_over: bool,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.hand_over = hand_over;
            true
        })
    }
}

/// How requests share frames: TYCHE_BATCH_ADAPTIVE (the default), TYCHE_BATCH_NATURAL or
/// TYCHE_BATCH_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_batch(
    options: *mut tyche_options,
    policy: c_int,
) -> c_int {
    let policy = match policy {
        TYCHE_BATCH_NONE => Some(BatchPolicy::None),
        TYCHE_BATCH_NATURAL => Some(BatchPolicy::Natural),
        TYCHE_BATCH_ADAPTIVE => Some(BatchPolicy::Adaptive),
        _ => None,
    };
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.batch = policy.unwrap_or(it.batch);
            policy.is_some()
        })
    }
}

/// Whether checksums cover data; they do by default. Headers and commands always are covered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_checksum(
    options: *mut tyche_options,
    checksum: bool,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.checksum = checksum;
            true
        })
    }
}

/// Whether never to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_read_only(
    options: *mut tyche_options,
    read_only: bool,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.read_only = read_only;
            true
        })
    }
}

/// How long opening may take; 10000 by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_timeout_ms(
    options: *mut tyche_options,
    milliseconds: u32,
) -> c_int {
    let timeout = Duration::from_millis(milliseconds.into());
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.timeout = timeout;
            true
        })
    }
}

/// How long requests wait for a lost target before they fail with EIO; -1: for ever; 600000 by
/// default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_loss_timeout_ms(
    options: *mut tyche_options,
    milliseconds: i64,
) -> c_int {
    let timeout = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    // SAFETY: as the header demands.
    unsafe {
        set(options, |it| {
            it.ctrl_loss_tmo = timeout;
            milliseconds >= -1
        })
    }
}

/// Be the host of that UUID rather than this machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_host(
    options: *mut tyche_options,
    uuid: *const c_char,
) -> c_int {
    // SAFETY: both as the header demands.
    unsafe {
        let uuid = text(uuid).and_then(|text| Uuid::parse_str(text).ok());
        set(options, |it| {
            it.host = uuid;
            uuid.is_some()
        })
    }
}
