//! Options from C.

use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

use tyche_proto::{BatchPolicy, QUEUES_MAX};
use tyche_remote::QUEUE_SIZE;
use tyche_session::CHANNELS_MAX;
use tyche_session::fcoe::{E_D_TOVS, parse_wwpn};
use uuid::Uuid;

use crate::options::{FcoeMode, FcoeOptions, Mode, Options};

/// The calling thread drives the session: the shortest path, for one thread that polls.
pub const TYCHE_INLINE: c_int = 0;
/// The volume has a thread of its own, to which any number of threads submit requests.
pub const TYCHE_QUEUE: c_int = 1;

/// Over FCoE, without a fabric: ports choose their addresses themselves, and talk to each other.
pub const TYCHE_FCOE_VN2VN: c_int = 0;
/// Over FCoE, in a fabric: ports log in with a switch for FCoE (FCF), and talk through it.
pub const TYCHE_FCOE_FABRIC: c_int = 1;

/// Each request has a frame of its own: the baseline to measure batching against.
pub const TYCHE_BATCH_NONE: c_int = 0;
/// Requests that are ready at the same time share a frame; none waits.
pub const TYCHE_BATCH_NATURAL: c_int = 1;
/// A frame waits up to 50 microseconds for the number of requests that gave the best throughput
/// lately.
pub const TYCHE_BATCH_ADAPTIVE: c_int = 2;

/// Options to open a volume with. Made by tyche_options_new(), freed by tyche_options_free(), used
/// by one thread at a time.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct tyche_options {
    pub(super) options: Options,
}

/// The text at `text`, if it is not null and UTF-8.
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

/// Sets an option to a value; `-EINVAL` if the pointer is null, or if there is no value because the
/// one from C is invalid.
///
/// # Safety
/// `options` is null or came from `tyche_options_new`, and is not used by others meanwhile.
unsafe fn set<T>(
    options: *mut tyche_options,
    value: Option<T>,
    put: impl FnOnce(&mut Options, T),
) -> c_int {
    // SAFETY: valid and unshared as the caller of this function promises, or null.
    let options = unsafe { options.as_mut() };
    match (options, value) {
        (Some(options), Some(value)) => {
            put(&mut options.options, value);
            0
        }
        _ => -libc::EINVAL,
    }
}

/// As [`set`], of an option of FCoE; `-EINVAL` also if FCoE is not chosen.
///
/// # Safety
/// As for [`set`].
unsafe fn set_fcoe<T>(
    options: *mut tyche_options,
    value: Option<T>,
    put: impl FnOnce(&mut FcoeOptions, T),
) -> c_int {
    // SAFETY: valid and unshared as the caller of this function promises, or null.
    let fcoe = unsafe { options.as_mut() }.and_then(|it| it.options.fcoe.as_mut());
    match (fcoe, value) {
        (Some(fcoe), Some(value)) => {
            put(fcoe, value);
            0
        }
        _ => -libc::EINVAL,
    }
}

/// Options with their defaults, for the export of that name; over FCoE it is WWPN or WWPN:LUN.
/// NULL if the name is invalid. Does not keep the string.
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

/// Adds an interface that reaches the target, or "udp:HOST:PORT", "tcp:HOST:PORT" or
/// "rdma:HOST:PORT" where it listens. All are used together; without any, every interface that
/// is up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_add_link(
    options: *mut tyche_options,
    interface: *const c_char,
) -> c_int {
    // SAFETY: both as the header demands.
    unsafe {
        let name = text(interface).filter(|name| !name.is_empty());
        set(options, name, |it, name| it.links.push(name.to_owned()))
    }
}

/// Whether to connect by Fibre Channel over Ethernet, on the one interface that is added; off by
/// default. Options that only Tyche's own protocol has must have their defaults then: channels,
/// EtherType, batch, checksum, host, keys, fast fail timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_fcoe(options: *mut tyche_options, fcoe: bool) -> c_int {
    let put = |it: &mut Options, on: bool| {
        it.fcoe = on.then(|| it.fcoe.take().unwrap_or_default());
    };
    // SAFETY: as the header demands.
    unsafe { set(options, Some(fcoe), put) }
}

/// Over FCoE: the network, TYCHE_FCOE_VN2VN (the default) or TYCHE_FCOE_FABRIC. -EINVAL unless
/// tyche_options_set_fcoe() was called before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_fcoe_mode(
    options: *mut tyche_options,
    mode: c_int,
) -> c_int {
    let mode = match mode {
        TYCHE_FCOE_VN2VN => Some(FcoeMode::Vn2vn),
        TYCHE_FCOE_FABRIC => Some(FcoeMode::Fabric),
        _ => None,
    };
    // SAFETY: as the header demands.
    unsafe { set_fcoe(options, mode, |it, value| it.mode = value) }
}

/// Over FCoE: name of the port of this end, for access lists of the target; by default it follows
/// from the interface's address. -EINVAL unless tyche_options_set_fcoe() was called before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_wwpn(
    options: *mut tyche_options,
    wwpn: *const c_char,
) -> c_int {
    // SAFETY: both as the header demands.
    unsafe {
        let wwpn = text(wwpn).filter(|text| parse_wwpn(text).is_ok());
        set_fcoe(options, wwpn, |it, wwpn| it.wwpn = Some(wwpn.to_owned()))
    }
}

/// Over FCoE: E_D_TOV, 50 to 60000, after which it is noticed what is lost; the larger one of both
/// ends counts; 2000 by default. -EINVAL unless tyche_options_set_fcoe() was called before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_e_d_tov_ms(
    options: *mut tyche_options,
    milliseconds: u32,
) -> c_int {
    let e_d_tov = Duration::from_millis(milliseconds.into());
    let e_d_tov = Some(e_d_tov).filter(|it| E_D_TOVS.contains(it));
    // SAFETY: as the header demands.
    unsafe { set_fcoe(options, e_d_tov, |it, value| it.e_d_tov = value) }
}

/// EtherType of the frames, 0x0600 or higher, the same on both sides; 0x88b5 by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_ethertype(
    options: *mut tyche_options,
    ethertype: u16,
) -> c_int {
    let ethertype = Some(ethertype).filter(|number| *number >= 0x600);
    // SAFETY: as the header demands.
    unsafe { set(options, ethertype, |it, value| it.ethertype = value) }
}

/// Whether to send through the interface's queueing discipline, so that traffic control (tc)
/// applies; costs some speed, and is off by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_qdisc(
    options: *mut tyche_options,
    qdisc: bool,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe { set(options, Some(qdisc), |it, value| it.qdisc = value) }
}

/// The thread that drives the session: TYCHE_INLINE (the default) or TYCHE_QUEUE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_mode(options: *mut tyche_options, mode: c_int) -> c_int {
    let mode = match mode {
        TYCHE_INLINE => Some(Mode::Inline),
        TYCHE_QUEUE => Some(Mode::Queue),
        _ => None,
    };
    // SAFETY: as the header demands.
    unsafe { set(options, mode, |it, value| it.mode = value) }
}

/// Channels for each pair of a local interface and one of the target's, 1 to 16; 1 by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_channels(
    options: *mut tyche_options,
    channels: u8,
) -> c_int {
    let channels = Some(channels).filter(|channels| (1..=CHANNELS_MAX).contains(channels));
    // SAFETY: as the header demands.
    unsafe { set(options, channels, |it, value| it.native.channels = value) }
}

/// Queues of the session, 1 to 64, each for one thread: tyche_open_queue() opens all but the first;
/// 1 by default. Over FCoE up to 16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_queues(
    options: *mut tyche_options,
    queues: u8,
) -> c_int {
    let queues = Some(queues.into()).filter(|queues| (1..=QUEUES_MAX).contains(queues));
    // SAFETY: as the header demands.
    unsafe { set(options, queues, |it, value| it.queues = value) }
}

/// The most requests at the target at once, 1 to 1024; 128 by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_queue_size(
    options: *mut tyche_options,
    queue_size: u16,
) -> c_int {
    let queue_size = Some(queue_size).filter(|size| QUEUE_SIZE.contains(size));
    // SAFETY: as the header demands.
    unsafe { set(options, queue_size, |it, value| it.session.queue_size = value) }
}

/// Bytes of the volume's own memory, through which data of unregistered buffers are copied; 64 MiB
/// by default. No single request may be longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_memory(
    options: *mut tyche_options,
    bytes: usize,
) -> c_int {
    let memory = Some(bytes).filter(|bytes| *bytes > 0);
    // SAFETY: as the header demands.
    unsafe { set(options, memory, |it, value| it.memory = value) }
}

/// The longest spin for more work before sleeping; 0, the default: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_spin_us(
    options: *mut tyche_options,
    microseconds: u32,
) -> c_int {
    let spin = Duration::from_micros(microseconds.into());
    // SAFETY: as the header demands.
    unsafe { set(options, Some(spin), |it, value| it.spin = value) }
}

/// The batching of requests in frames: TYCHE_BATCH_ADAPTIVE (the default), TYCHE_BATCH_NATURAL or
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
    unsafe { set(options, policy, |it, value| it.native.batch = value) }
}

/// Whether checksums cover data; they do by default. Headers and commands are always covered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_checksum(
    options: *mut tyche_options,
    checksum: bool,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe { set(options, Some(checksum), |it, value| it.native.checksum = value) }
}

/// The target's key, as `tyche key show` prints it there. With it, every frame is encrypted and
/// authenticated, and both ends have to prove who they are. By default it is the key that this
/// machine knows for the target (`tyche key known`), and if it knows none, frames are in the clear.
/// A machine that knows keys of targets wants exports as TARGET/EXPORT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_target_key(
    options: *mut tyche_options,
    key: *const c_char,
) -> c_int {
    // SAFETY: both as the header demands.
    unsafe {
        let key = text(key).and_then(|text| text.parse().ok());
        set(options, key, |it, key| it.target_key = Some(key))
    }
}

/// File of the secret key of this end, if the target has a key; /etc/tyche/key by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_key(
    options: *mut tyche_options,
    file: *const c_char,
) -> c_int {
    // SAFETY: both as the header demands.
    unsafe { set(options, text(file), |it, file| it.key = file.into()) }
}

/// Whether to open the export read-only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_read_only(
    options: *mut tyche_options,
    read_only: bool,
) -> c_int {
    // SAFETY: as the header demands.
    unsafe { set(options, Some(read_only), |it, value| it.session.read_only = value) }
}

/// The longest time to open; 10000 by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_timeout_ms(
    options: *mut tyche_options,
    milliseconds: u32,
) -> c_int {
    let timeout = Duration::from_millis(milliseconds.into());
    // SAFETY: as the header demands.
    unsafe { set(options, Some(timeout), |it, value| it.timeout = value) }
}

/// The time that requests wait for a lost target before they fail with EIO; -1: for ever; 600000 by
/// default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_loss_timeout_ms(
    options: *mut tyche_options,
    milliseconds: i64,
) -> c_int {
    let timeout = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    let timeout = (milliseconds >= -1).then_some(timeout);
    // SAFETY: as the header demands.
    unsafe { set(options, timeout, |it, value| it.session.ctrl_loss_tmo = value) }
}

/// The time that requests wait for a lost target before they fail with EIO, while the session goes
/// on until the loss timeout, which must be longer; -1, the default: as long as that. Not over
/// FCoE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_fast_fail_timeout_ms(
    options: *mut tyche_options,
    milliseconds: i64,
) -> c_int {
    let timeout = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    let timeout = (milliseconds >= -1).then_some(timeout);
    // SAFETY: as the header demands.
    unsafe { set(options, timeout, |it, value| it.session.fast_io_fail_tmo = value) }
}

/// The UUID of the host to present, instead of this machine's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_options_set_host(
    options: *mut tyche_options,
    uuid: *const c_char,
) -> c_int {
    // SAFETY: both as the header demands.
    unsafe {
        let uuid = text(uuid).and_then(|text| Uuid::parse_str(text).ok());
        set(options, uuid, |it, value| it.native.host = Some(value))
    }
}
