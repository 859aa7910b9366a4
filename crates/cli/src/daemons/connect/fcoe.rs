//! `tyche connect --fcoe`: the options, how the initiator gets them, and the error messages when
//! the connection fails.

use std::time::Duration;

use clap::Args;
use tyche_fcoe::fc::network::Mode;
use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::{FcoeHostOptions, LANES_MAX, Obstacle, PortOptions};
use tyche_session::check;
use tyche_session::fcoe::{
    E_D_TOV, Numbers, PortName, Unreached, parse_disk, parse_mode, parse_wwpn, ports_dir,
};

use super::session::arena_size;
use super::{SessionArgs, SessionIdentity};
use crate::shared::error::{Code, Coded, CodedResult, Error, Result};
use crate::shared::fcoe::{AddressRecord, e_d_tov};

/// Options of Tyche's own protocol, which have no meaning over FCoE: groups, and some of links.
const OF_TYCHE: [&str; 4] = ["NativeArgs", "PlacementArgs", "batch", "ethertype"];

#[derive(Args, Clone, Debug)]
pub(crate) struct FcoeArgs {
    /// Connect by Fibre Channel over Ethernet: the export is the WWPN of a target, Tyche's or
    /// another, as `tyche discover --fcoe` lists it, or WWPN:LUN; without a LUN it is 0. One
    /// interface has to be named with --link.
    #[arg(long, conflicts_with_all = OF_TYCHE)]
    fcoe: bool,

    /// The network of the interface: vn2vn without a fabric, or fabric if switches for FCoE (FCFs)
    /// are there.
    #[arg(long, value_name = "MODE", requires = "fcoe", default_value = "vn2vn",
        value_parser = parse_mode)]
    fcoe_mode: Mode,

    /// Name of the port of this machine, for access lists of the target; by default it follows from
    /// the interface's address.
    #[arg(long, value_name = "WWPN", requires = "fcoe", value_parser = parse_wwpn)]
    wwpn: Option<Wwn>,

    /// E_D_TOV, 0.05 to 60: what is lost is noticed after that long. The larger one of both ends
    /// counts.
    #[arg(long, value_name = "SECONDS", requires = "fcoe", default_value_t = E_D_TOV.as_secs_f64(),
        value_parser = e_d_tov)]
    e_d_tov: f64,
}

impl FcoeArgs {
    /// Whether to connect by FCoE.
    pub(crate) fn is_wanted(&self) -> bool {
        self.fcoe
    }

    /// The options of a session, the name of its port, and warnings about its interface.
    pub(crate) fn options(
        &self,
        session: &SessionArgs,
        identity: &SessionIdentity,
    ) -> Result<(FcoeHostOptions, PortName, Vec<String>)> {
        let (target, lun) = parse_disk(&session.export).coded()?;
        let [link] = &session.common.links[..] else {
            let message = "FCoE needs one interface: name it with --link";
            return Err(Error::new(Code::Usage, message));
        };
        let common = session.common.options();
        check(&common).coded()?;
        let queues = session.common.queues.map_or(1, usize::from);
        if queues > LANES_MAX {
            let message = format!("over FCoE a session has 1 to {LANES_MAX} queues");
            return Err(Error::new(Code::Usage, message));
        }
        let interface = session.link.open_fcoe_on(link)?;
        let further_queues = session.link.open_fcoe_queues(link, queues - 1)?;
        let warnings = interface.warning().into_iter().collect();
        let name = PortName::take(interface.mac(), Numbers::Session).coded()?.or(self.wwpn);
        // Nothing is written to a disk for it, which could be the one that is connected.
        let address = AddressRecord::of(name.wwpn, &ports_dir());
        let options = FcoeHostOptions {
            port: PortOptions {
                recorded: address.read(),
                remember: Some(address.into_callback()),
                ..name.options(interface, self.fcoe_mode, Duration::from_secs_f64(self.e_d_tov))
            },
            target,
            lun,
            further_queues,
            session: common,
            device: identity.device,
            resumes: identity.resumes,
            arena_size: arena_size(queues),
            spin: session.link.spin(),
        };
        Ok((options, name, warnings))
    }
}

/// The error for a disk that can't be used in time, by the obstacle on the way to it.
pub(crate) fn unreached(session: &SessionArgs, obstacle: Obstacle) -> Error {
    let error = Unreached {
        disk: session.export.clone(),
        link: session.common.links.first().cloned().unwrap_or_default(),
        within: session.timeout(),
        obstacle,
    };
    Error::new(error.code(), error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::super::ConnectArgs;
    use super::*;

    #[test]
    fn options_of_tyche_have_no_meaning_over_fcoe() {
        let command = ConnectArgs::augment_args(Command::new("connect").no_binary_name(true));
        let parse = |arguments: &[&str]| {
            command.clone().try_get_matches_from(arguments).map(drop).map_err(|it| it.kind())
        };
        assert_eq!(parse(&["a", "--fcoe", "--link=eth1", "--wwpn=200002005e100001"]), Ok(()));
        let conflict = clap::error::ErrorKind::ArgumentConflict;
        for option in ["--channels=2", "--reconnect-delay=5"] {
            assert_eq!(parse(&["a", "--fcoe", option]), Err(conflict), "{option}");
        }
        let missing = clap::error::ErrorKind::MissingRequiredArgument;
        assert_eq!(parse(&["a", "--e-d-tov=1"]), Err(missing));
    }
}
