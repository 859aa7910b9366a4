//! The kernel's memory policies on this machine, on its first node with memory; several nodes are
//! tested by `cargo xtask numa`.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

use std::path::Path;
use std::ptr::NonNull;
use std::thread;

use tyche_numa::{
    Affinity, Cpus, Error, Near, Node, Placement, Topology, allowed_cpus, bind, nodes_of, pin,
};

const PAGES: usize = 300;
const PAGE: usize = 4096;

#[repr(align(4096))]
struct Pages([[u8; PAGE]; PAGES]);

fn node() -> Node {
    Topology::read(Path::new("/sys")).unwrap().with_memory()[0]
}

fn untouched() -> Box<Pages> {
    // Large enough to come from the kernel, not from the allocator's stock.
    let pages = Box::<Pages>::new_uninit();
    // SAFETY: bytes may have any value, and they are not read.
    unsafe { pages.assume_init() }
}

#[test]
fn memory_is_said_to_be_where_it_is_preferred() {
    let _near = Near::to(node()).unwrap();
    let mut pages = untouched();
    let start = NonNull::from(&mut *pages).cast();
    for page in &mut pages.0 {
        page.fill(1);
    }
    assert_eq!(nodes_of(start, size_of::<Pages>()), [node()]);
}

#[test]
fn bound_memory_stays_what_it_is() {
    let mut pages = untouched();
    pages.0.iter_mut().for_each(|page| page.fill(7));
    let start = NonNull::from(&mut *pages).cast();
    bind(start, size_of::<Pages>(), node()).unwrap();
    assert!(pages.0.iter().all(|page| page.iter().all(|byte| *byte == 7)));
    assert_eq!(nodes_of(start, size_of::<Pages>()), [node()]);
}

#[test]
fn a_node_that_is_not_there_has_no_memory() {
    let absent = Node(1023);
    let error = Near::to(absent).unwrap_err();
    assert!(matches!(error, Error::NoMemory { node } if node == absent), "{error}");
    assert!(error.to_string().contains("cpuset.mems"), "{error}");
    let mut pages = untouched();
    let start = NonNull::from(&mut *pages).cast();
    assert!(matches!(bind(start, PAGE, absent), Err(Error::NoMemory { .. })));
}

/// The policy of the calling thread, in the kernel's words.
fn policy_of_new_memory() -> String {
    let pages = untouched();
    let start = NonNull::from(&*pages).addr().get();
    let maps = std::fs::read_to_string("/proc/thread-self/numa_maps").unwrap();
    let line = maps.lines().rev().find(|line| {
        let at = line.split(' ').next().and_then(|at| usize::from_str_radix(at, 16).ok());
        at.is_some_and(|at| at <= start)
    });
    line.unwrap().split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn a_preference_ends_with_its_guard_and_is_its_threads_own() {
    if !Path::new("/proc/thread-self/numa_maps").exists() {
        println!("SKIPPED: this kernel has no numa_maps");
        return;
    }
    thread::spawn(|| {
        assert_eq!(policy_of_new_memory(), "default");
        let outer = Near::to(node()).unwrap();
        let preferred = format!("prefer:{}", node());
        assert_eq!(policy_of_new_memory(), preferred);
        let inner = Near::to(node()).unwrap();
        assert_eq!(thread::spawn(policy_of_new_memory).join().unwrap(), preferred, "inherited");
        drop(inner);
        assert_eq!(policy_of_new_memory(), preferred);
        drop(outer);
        assert_eq!(policy_of_new_memory(), "default");
    })
    .join()
    .unwrap();
}

#[test]
fn a_thread_is_pinned_and_let_go() {
    thread::spawn(|| {
        let all = allowed_cpus().unwrap();
        let one: Cpus = all.iter().take(1).collect();
        pin(&one).unwrap();
        assert_eq!(allowed_cpus().unwrap(), one);
        assert_eq!(thread::spawn(|| allowed_cpus().unwrap()).join().unwrap(), one, "inherited");
        pin(&all).unwrap();
        assert_eq!(allowed_cpus().unwrap(), all);
        assert!(pin(&Cpus::default()).is_err(), "nowhere");
    })
    .join()
    .unwrap();
}

#[test]
fn what_a_container_does_not_allow_is_one_clear_line() {
    thread::spawn(|| {
        forbid_memory_policies();
        let error = Near::to(node()).unwrap_err();
        assert!(matches!(error, Error::Refused { call: "set_mempolicy", .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("seccomp") && !message.contains('\n'), "{message}");
        let mut pages = untouched();
        pages.0.iter_mut().for_each(|page| page.fill(1));
        let start = NonNull::from(&mut *pages).cast();
        assert!(matches!(bind(start, PAGE, node()), Err(Error::Refused { call: "mbind", .. })));
        assert!(nodes_of(start, size_of::<Pages>()).is_empty());
        let several = several_nodes();
        for affinity in [Affinity::KmemNic, Affinity::FullMem] {
            let refused = Placement::new(affinity, several.clone()).unwrap_err();
            assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        }
        // Without placement no system call is tried.
        assert!(Placement::new(Affinity::None, several).is_ok());
    })
    .join()
    .unwrap();
}

/// A machine with more nodes than this one may have.
fn several_nodes() -> Topology {
    let sys = tempfile::tempdir().unwrap();
    let nodes = sys.path().join("devices/system/node");
    std::fs::create_dir_all(&nodes).unwrap();
    std::fs::write(nodes.join("online"), "0-1").unwrap();
    Topology::read(sys.path()).unwrap()
}

/// Denies the calls to the calling thread, as the default profile of container engines does.
fn forbid_memory_policies() {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let is = |call: i64, jt| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, 0, call as u32);
    let result = |k| step(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        is(libc::SYS_set_mempolicy, 3),
        is(libc::SYS_mbind, 2),
        is(libc::SYS_move_pages, 1),
        result(libc::SECCOMP_RET_ALLOW),
        result(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program =
        libc::sock_fprog { len: steps.len() as libc::c_ushort, filter: steps.as_mut_ptr() };
    // SAFETY: no pointers are passed.
    let unprivileged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(unprivileged, 0);
    // SAFETY: the kernel reads the program, which outlives the call.
    let filtered = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    assert_eq!(filtered, 0);
}
