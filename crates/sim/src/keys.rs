//! Keys of simulated machines. Each follows from the machine's number, so that it is the same in
//! all of its lives.

use std::sync::{Arc, LazyLock};

use tyche_proto::crypto::{PublicKey, SecretKey};
use tyche_proto::{Access, HostKeys};
use tyche_wire::Name;

/// Hosts of a world at most, those that read back the disks included.
const HOSTS_MAX: u8 = 24;
/// Numbers of machines that are no hosts.
const TARGET: u8 = 0xff;
const FORGER: u8 = 0xfe;

fn secret(number: u8) -> SecretKey {
    SecretKey::from_random([number ^ 0x5a; 32])
}

/// The keys of a forger, which the target does not know. It knows the target's first one.
pub(crate) static OF_FORGER: LazyLock<HostKeys> =
    LazyLock::new(|| of(FORGER, of_target(0).public()));

/// The names of all hosts, by their keys.
static NAMES: LazyLock<Access> = LazyLock::new(|| {
    let hosts = (0..HOSTS_MAX).map(|host| (secret(host).public(), name(host.into())));
    Access { required: true, hosts: hosts.collect(), ..Access::default() }
});

/// The name of a host at the target.
pub(crate) fn name(host: u64) -> Name {
    Name::new(&format!("host-{host}")).expect("a name")
}

fn of(number: u8, target: PublicKey) -> HostKeys {
    HostKeys { secret: secret(number), target, target_uuid: None }
}

/// The key of the target after that many changes of it.
pub(crate) fn of_target(changes: u8) -> SecretKey {
    SecretKey::from_random([TARGET ^ 0x5a, changes].repeat(16).try_into().expect("32 bytes"))
}

/// The keys of a host that knows the target by that key.
pub(crate) fn of_host(host: u64, target: PublicKey) -> Arc<HostKeys> {
    let number = u8::try_from(host).ok().filter(|&number| number < HOSTS_MAX);
    Arc::new(of(number.expect("a world has few hosts"), target))
}

/// The hosts that may connect. `required`: no others may.
pub(crate) fn access(required: bool) -> Access {
    Access { required, ..NAMES.clone() }
}
