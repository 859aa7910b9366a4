//! A target of Fibre Channel over Ethernet in the test's process.

#![allow(unreachable_pub, reason = "it is compiled into several test files")]

use std::sync::Arc;
use std::time::Duration;

use tyche_engine::Exported;
use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::scsi::Uuid;
use tyche_fcoe::{
    FcoeTarget, FcoeTargetOptions, Interface, PortOptions, TargetUnit, Units, VisibleTo,
};
use tyche_store::Store;
use tyche_testkit::net::Namespace;

/// Short, so that recovery does not take long.
pub const E_D_TOV: Duration = Duration::from_millis(100);

/// Serves a store as LUN 0 on an interface of a namespace; also returns the name of the port.
pub fn fcoe_target(
    namespace: &Namespace,
    link: &str,
    store: &Arc<dyn Store>,
) -> (FcoeTarget, String) {
    let unit = TargetUnit {
        number: 0,
        exported: Arc::new(Exported::new("disk".to_owned(), Arc::clone(store))),
        uuid: Uuid::from_u128(1),
        shared: false,
        initiators: VisibleTo::default(),
        continues: false,
        generation: None,
    };
    let interface = namespace.on_thread(|| Interface::open(link, false)).unwrap();
    let mac = interface.mac();
    let wwpn = Wwn::of_port(mac);
    let options = FcoeTargetOptions {
        port: PortOptions::new(interface, (wwpn, Wwn::of_node(mac)), E_D_TOV),
        further_threads: Vec::new(),
        units: Arc::new(Units::new(vec![unit])),
        spin: Duration::ZERO,
    };
    (FcoeTarget::start(options).unwrap(), wwpn.to_string())
}
