//! A session over Fibre Channel over Ethernet: what a volume's options make of it.

use tyche_fcoe::{FcoeHostOptions, Interface, LANES_MAX, Obstacle};
use tyche_link::Link;
use tyche_proto::wire::ETHERTYPE;
use tyche_session::fcoe::{
    E_D_TOVS, FcoeError, Numbers, PortName, Unreached, open_interface, parse_disk, parse_wwpn,
};
use tyche_session::{check, log_warnings};
use uuid::Uuid;

use crate::error::OpenError;
use crate::options::{FcoeOptions, Mode, NativeOptions, Options};

impl Options {
    /// Opens the interface of a volume over FCoE, and the links of further queues.
    pub(crate) fn open_interface(&self) -> Result<(Interface, Vec<Box<dyn Link>>), OpenError> {
        let [link] = &self.links[..] else {
            let message = "FCoE needs one interface: name it as the link";
            return Err(OpenError::Option(message.to_owned()));
        };
        let interface = open_interface(link, self.qdisc)?;
        // In inline mode each further one is opened by its thread.
        let further = if self.mode == Mode::Inline { 0 } else { self.queues - 1 };
        let further = (0..further).map(|_| self.open_fcoe_queue()).collect::<Result<_, _>>()?;
        Ok((interface, further))
    }

    /// Opens the link of a further queue.
    pub(crate) fn open_fcoe_queue(&self) -> Result<Box<dyn Link>, OpenError> {
        let link = &self.links[0];
        Ok(Interface::open_further(link, self.qdisc).map_err(FcoeError::from)?)
    }

    /// Checks the number of queues over FCoE.
    pub(crate) fn check_fcoe_queues(&self) -> Result<(), OpenError> {
        if (1..=LANES_MAX).contains(&self.queues) {
            return Ok(());
        }
        Err(OpenError::Option(format!("over FCoE a session has 1 to {LANES_MAX} queues")))
    }

    /// The session over FCoE that the options ask for, and the name of its port, which no other
    /// process may take meanwhile.
    pub(crate) fn prepare(
        &self,
        fcoe: &FcoeOptions,
        (interface, further_queues): (Interface, Vec<Box<dyn Link>>),
    ) -> Result<(FcoeHostOptions, PortName), OpenError> {
        let wrong = |message: &str| Err(OpenError::Option(message.to_owned()));
        if self.has_native_options() {
            return wrong(
                "over FCoE, options that only Tyche's own protocol has must be at their defaults: \
                 `native`, target, EtherType, target key",
            );
        }
        check(&self.session).map_err(|error| OpenError::Option(error.to_string()))?;
        if !E_D_TOVS.contains(&fcoe.e_d_tov) {
            return wrong("E_D_TOV is 0.05 s to 60 s");
        }
        let arena_size = self.pages()?.into();
        let (target, lun) = parse_disk(&self.export)?;
        let wwpn = fcoe.wwpn.as_deref().map(parse_wwpn).transpose().map_err(OpenError::Option)?;
        log_warnings(interface.warning().as_slice());
        let name = PortName::take(interface.mac(), Numbers::Session)?.or(wwpn);
        let host = FcoeHostOptions {
            // A library leaves nothing behind, so nothing is recorded.
            port: name.options(interface, fcoe.mode, fcoe.e_d_tov),
            target,
            lun,
            further_queues,
            session: self.session.clone(),
            device: Uuid::new_v4(),
            resumes: None,
            arena_size,
            spin: self.spin,
        };
        Ok((host, name))
    }

    /// Whether an option that only Tyche's own protocol has is not at its default.
    fn has_native_options(&self) -> bool {
        let Self { native, target, ethertype, target_key, .. } = self;
        let is_changed = *native != NativeOptions::default() || *ethertype != ETHERTYPE;
        is_changed || target.is_some() || target_key.is_some()
    }

    /// The error for a disk that can't be used in time.
    pub(crate) fn unreached(&self, obstacle: Obstacle) -> OpenError {
        OpenError::Unreached(Box::new(Unreached {
            disk: self.export.clone(),
            link: self.links.first().cloned().unwrap_or_default(),
            within: self.timeout,
            obstacle,
        }))
    }
}
