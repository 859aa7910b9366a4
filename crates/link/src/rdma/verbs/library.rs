//! The libraries of RDMA, `libibverbs` and `librdmacm`, as far as we use them: loaded when a link
//! wants them, so that a machine without them can do all else.
//!
//! Structures and constants are those of `infiniband/verbs.h` and `rdma/rdma_cma.h`: their layout
//! is part of the libraries' interface. What the headers define as inline functions goes through
//! the table of a device's functions, as there.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::mem::offset_of;
use std::sync::OnceLock;

use libc::{sockaddr, sockaddr_storage};

/// A pointer to an object of the libraries.
pub(super) type Opaque = *mut c_void;

/// Permissions of a memory region: to be written locally, and by peers.
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 2;
/// A reliable connection.
pub(super) const QPT_RC: c_int = 2;
/// Kinds of work.
pub(super) const WR_RDMA_WRITE: c_int = 0;
pub(super) const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub(super) const WR_SEND: c_int = 2;
/// The end of this work is notified.
pub(super) const SEND_SIGNALED: c_uint = 2;
/// Kinds of arrivals: a message, or the immediate of a write.
pub(super) const WC_RECV: u32 = 128;
pub(super) const WC_RECV_RDMA_WITH_IMM: u32 = 129;
/// The work was dropped because the connection had ended.
pub(super) const WC_WR_FLUSH_ERR: u32 = 5;
pub(super) const WC_RETRY_EXC_ERR: u32 = 12;
/// Ports like those of TCP.
pub(super) const PS_TCP: c_int = 0x0106;
/// A device whose writes have no immediates.
pub(super) const TRANSPORT_IWARP: c_int = 1;

/// Events of a connection.
pub(super) const ADDR_RESOLVED: c_int = 0;
pub(super) const ADDR_ERROR: c_int = 1;
pub(super) const ROUTE_RESOLVED: c_int = 2;
pub(super) const ROUTE_ERROR: c_int = 3;
pub(super) const CONNECT_REQUEST: c_int = 4;
pub(super) const CONNECT_ERROR: c_int = 6;
pub(super) const UNREACHABLE: c_int = 7;
pub(super) const REJECTED: c_int = 8;
pub(super) const ESTABLISHED: c_int = 9;
pub(super) const DISCONNECTED: c_int = 10;
pub(super) const DEVICE_REMOVAL: c_int = 11;

/// `struct ibv_context_ops`. The rest is older than what we use.
#[repr(C)]
pub(super) struct ContextOps {
    unused_0: [Opaque; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    unused_1: [Opaque; 12],
    pub(super) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(super) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    unused_2: [Opaque; 5],
}

/// The front of `struct ibv_device`.
#[repr(C)]
pub(super) struct Device {
    unused: [Opaque; 2],
    node_type: c_int,
    pub(super) transport_type: c_int,
}

/// The front of `struct ibv_context`.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    pub(super) ops: ContextOps,
}

/// The front of `struct ibv_cq`.
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
}

/// The front of `struct ibv_qp`.
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct CompChannel {
    context: *mut Context,
    pub(super) fd: c_int,
    refcnt: c_int,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(super) struct Mr {
    context: *mut Context,
    pd: Opaque,
    addr: Opaque,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: c_uint,
    /// In network order.
    pub(super) imm_data: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    unused: [u64; 9],
}

impl SendWr {
    /// Work of one piece.
    pub(super) fn new(opcode: c_int, sge: &mut Sge) -> Self {
        Self {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: sge,
            num_sge: 1,
            opcode,
            send_flags: 0,
            imm_data: 0,
            remote_addr: 0,
            rkey: 0,
            unused: [0; 9],
        }
    }
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut RecvWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wc {
    pub(super) wr_id: u64,
    pub(super) status: u32,
    pub(super) opcode: u32,
    vendor_err: u32,
    pub(super) byte_len: u32,
    /// In network order.
    pub(super) imm_data: u32,
    qp_num: u32,
    src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: Opaque,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: Opaque,
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

/// The front of `struct rdma_cm_id`, with the addresses of its route.
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    channel: Opaque,
    context: Opaque,
    pub(super) qp: *mut Qp,
    pub(super) source: sockaddr_storage,
    pub(super) destination: sockaddr_storage,
}

/// The front of `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ConnParam {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// The front of `struct rdma_cm_event`.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    listen_id: *mut CmId,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) conn: ConnParam,
}

const _: () = {
    assert!(size_of::<ContextOps>() == 32 * size_of::<Opaque>());
    assert!(offset_of!(ContextOps, post_send) == 25 * size_of::<Opaque>());
    assert!(offset_of!(SendWr, remote_addr) == 40 && size_of::<SendWr>() == 128);
    assert!(size_of::<Wc>() == 48);
    assert!(offset_of!(CmId, source) == 32);
};

macro_rules! library {
    ($( $file:literal { $( fn $name:ident($($type:ty),*) -> $result:ty; )* } )*) => {
        /// The functions that we use, by their names.
        pub(super) struct Library {
            $( $( pub(super) $name: unsafe extern "C" fn($($type),*) -> $result, )* )*
        }

        impl Library {
            fn load() -> Result<Self, String> {
                Ok(Self { $( $( $name: {
                    let name = concat!(stringify!($name), "\0");
                    let function = find($file, name)?;
                    // SAFETY: a function of that name has this type.
                    unsafe {
                        std::mem::transmute::<Opaque, unsafe extern "C" fn($($type),*) -> $result>(
                            function,
                        )
                    }
                }, )* )* })
            }
        }
    };
}

library! {
    c"libibverbs.so.1" {
        fn ibv_alloc_pd(*mut Context) -> Opaque;
        fn ibv_dealloc_pd(Opaque) -> c_int;
        fn ibv_reg_mr(Opaque, Opaque, usize, c_int) -> *mut Mr;
        fn ibv_dereg_mr(*mut Mr) -> c_int;
        fn ibv_create_comp_channel(*mut Context) -> *mut CompChannel;
        fn ibv_destroy_comp_channel(*mut CompChannel) -> c_int;
        fn ibv_create_cq(*mut Context, c_int, Opaque, *mut CompChannel, c_int) -> *mut Cq;
        fn ibv_destroy_cq(*mut Cq) -> c_int;
        fn ibv_get_cq_event(*mut CompChannel, *mut *mut Cq, *mut Opaque) -> c_int;
        fn ibv_ack_cq_events(*mut Cq, c_uint) -> ();
    }
    c"librdmacm.so.1" {
        fn rdma_create_event_channel() -> *mut EventChannel;
        fn rdma_destroy_event_channel(*mut EventChannel) -> ();
        fn rdma_create_id(*mut EventChannel, *mut *mut CmId, Opaque, c_int) -> c_int;
        fn rdma_destroy_id(*mut CmId) -> c_int;
        fn rdma_migrate_id(*mut CmId, *mut EventChannel) -> c_int;
        fn rdma_bind_addr(*mut CmId, *const sockaddr) -> c_int;
        fn rdma_listen(*mut CmId, c_int) -> c_int;
        fn rdma_resolve_addr(*mut CmId, *const sockaddr, *const sockaddr, c_int) -> c_int;
        fn rdma_resolve_route(*mut CmId, c_int) -> c_int;
        fn rdma_create_qp(*mut CmId, Opaque, *mut QpInitAttr) -> c_int;
        fn rdma_destroy_qp(*mut CmId) -> ();
        fn rdma_connect(*mut CmId, *mut ConnParam) -> c_int;
        fn rdma_accept(*mut CmId, *mut ConnParam) -> c_int;
        fn rdma_disconnect(*mut CmId) -> c_int;
        fn rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        fn rdma_ack_cm_event(*mut CmEvent) -> c_int;
    }
}

/// The libraries.
///
/// # Errors
/// `Unsupported` if this machine has not got them, with the remedy.
pub(super) fn library() -> io::Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(Library::load).as_ref().map_err(|missing| {
        let message = format!(
            "{missing}: install the packages librdmacm1 and ibverbs-providers (RPM: librdmacm, \
             libibverbs)"
        );
        io::Error::new(io::ErrorKind::Unsupported, message)
    })
}

/// A function of a library, which stays loaded.
fn find(file: &CStr, name: &str) -> Result<Opaque, String> {
    // SAFETY: the name ends with a zero, and the library has no other effect than to be there.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return Err(format!("this machine has no {}", file.to_string_lossy()));
    }
    // SAFETY: the library is loaded, and the name ends with a zero.
    let function = unsafe { libc::dlsym(library, name.as_ptr().cast::<c_char>()) };
    if function.is_null() {
        let name = name.trim_end_matches('\0');
        return Err(format!("{} has no {name}", file.to_string_lossy()));
    }
    Ok(function)
}
