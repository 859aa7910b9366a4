//! VLANs that a target announces on the interface beneath them.

use std::collections::{BTreeMap, BTreeSet};

use tyche_fcoe::VlanAnnouncer;

use crate::shared::error::{Code, Error, Result};
use crate::shared::links::LinkArgs;

/// A VLAN on which FCoE is spoken.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Vlan {
    /// The interface beneath that of the VLAN.
    link: String,
    /// Its number, 1 to 4094.
    vid: u16,
}

impl Vlan {
    /// Parses `INTERFACE:VLAN`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(':').filter(|(link, _)| !link.is_empty());
        let vid = parts.and_then(|(link, vid)| Some((link, vid.parse().ok()?)));
        vid.filter(|(_, vid)| (1..=4094).contains(vid))
            .map(|(link, vid)| Self { link: link.to_owned(), vid })
            .ok_or_else(|| format!("`{text}`: write INTERFACE:VLAN, with a VLAN from 1 to 4094"))
    }
}

impl TryFrom<String> for Vlan {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

/// Starts to announce VLANs on the interface beneath them.
///
/// # Errors
/// The interface can't be used.
pub(super) fn announce(args: &LinkArgs, link: &str, vids: &[u16]) -> Result<VlanAnnouncer> {
    let announcer = VlanAnnouncer::start(args.open_fip_on(link)?, vids)?;
    tracing::info!("FCoE is announced on {link}, for its VLANs {vids:?}");
    Ok(announcer)
}

/// The numbers of the VLANs of each interface.
///
/// # Errors
/// An interface has more VLANs than can be told.
pub(super) fn by_link(vlans: &[Vlan]) -> Result<BTreeMap<&str, Vec<u16>>> {
    let mut by_link = BTreeMap::<_, BTreeSet<_>>::new();
    for Vlan { link, vid } in vlans {
        by_link.entry(link.as_str()).or_default().insert(*vid);
    }
    let most = VlanAnnouncer::VLANS_MAX;
    if let Some((link, vids)) = by_link.iter().find(|(_, vids)| vids.len() > most) {
        let message = format!(
            "`--fcoe-vlan {link}:..`: {} VLANs; an answer has room for {most}: name fewer",
            vids.len()
        );
        return Err(Error::new(Code::Usage, message));
    }
    Ok(by_link.into_iter().map(|(link, vids)| (link, vids.into_iter().collect())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_a_limited_number_of_vlans() {
        let most = VlanAnnouncer::VLANS_MAX as u16;
        let vlan = |vid| Vlan { link: "eth1".to_owned(), vid };
        let mut vlans: Vec<_> = (1..=most).rev().map(vlan).collect();
        vlans.push(vlan(most));
        let by_link = |vlans: &[Vlan]| {
            by_link(vlans).map(|it| it["eth1"].clone()).map_err(|it| it.to_string())
        };
        assert_eq!(by_link(&vlans), Ok((1..=most).collect()), "one is named twice");
        vlans.push(vlan(4094));
        let error = by_link(&vlans).unwrap_err();
        assert!(error.contains("eth1") && error.contains("65 VLANs"), "{error}");
    }

    #[test]
    fn a_vlan_is_an_interface_and_a_number() {
        let vlan = |link: &str, vid| Ok(Vlan { link: link.to_owned(), vid });
        assert_eq!(Vlan::parse("eth1:1"), vlan("eth1", 1));
        assert_eq!(Vlan::parse("eth1:4094"), vlan("eth1", 4094));
        assert_eq!(Vlan::parse("eth1:0:7"), vlan("eth1:0", 7), "an alias");
        for text in ["eth1", "eth1:", ":7", "eth1:0", "eth1:4095", "eth1:x", "eth1.7", ""] {
            let error = Vlan::parse(text).unwrap_err();
            assert!(error.contains("INTERFACE:VLAN"), "{text}: {error}");
        }
    }
}
