//! The target and export that a session looks for, and those that it has found.
//!
//! A session is given names or UUIDs. Until it is connected, it takes the target that offers the
//! export; if several do, it fails, because the user has to choose. Once it was connected, it looks
//! only for that target and that export. A target that is known by its key has to have the UUID
//! that it had when it was made known: another one may have the same key.

use arrayvec::ArrayVec;
use tyche_crypto::PublicKey;
use tyche_wire::{Discover, ExportInfo, Name, Offer, Uuid};

use super::sample::Sample;
use crate::channel::protection::HostKeys;

/// The export wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportId {
    /// By its name, unique at its target.
    Name(Name),
    /// By its UUID.
    Uuid(Uuid),
}

impl ExportId {
    /// Whether it names this export.
    pub fn names(&self, export: &ExportInfo) -> bool {
        match self {
            Self::Name(name) => export.name == *name,
            Self::Uuid(uuid) => export.uuid == *uuid,
        }
    }
}

/// The target wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetId {
    /// Any target that offers the export, if it is the only one.
    #[default]
    Any,
    /// By its name.
    Name(Name),
    /// By its UUID.
    Uuid(Uuid),
}

impl TargetId {
    /// Whether it names this target.
    pub fn names(&self, target: &OfferedBy) -> bool {
        match self {
            Self::Any => true,
            Self::Name(name) => target.name == *name,
            Self::Uuid(uuid) => target.target == *uuid,
        }
    }
}

/// Reads `[TARGET/]EXPORT`, where either is a name or a UUID; an export whose name has a slash is
/// `TARGET/EXPORT`, or `/EXPORT` for that of any target. `None` if a name is empty, too long, or
/// has control characters.
pub fn parse_export(text: &str) -> Option<(TargetId, ExportId)> {
    let (target, export) = text.split_once('/').unwrap_or(("", text));
    let uuid = |text: &str| Uuid::parse_str(text).ok().filter(|_| text.len() == 36);
    let name = |text: &str| Name::new(text).filter(|name| !name.is_empty());
    let target = match target {
        "" => TargetId::Any,
        text => match uuid(text) {
            Some(uuid) => TargetId::Uuid(uuid),
            None => TargetId::Name(name(text)?),
        },
    };
    let export = match uuid(export) {
        Some(uuid) => ExportId::Uuid(uuid),
        None => ExportId::Name(name(export)?),
    };
    Some((target, export))
}

/// A target that offers the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedBy {
    /// Its UUID.
    pub target: Uuid,
    /// Its name.
    pub name: Name,
}

/// Offers that are remembered until one is taken.
const OFFERS_MAX: usize = 8;

/// Target and export of a Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResolvedExport {
    pub(super) target: Uuid,
    pub(super) export: Uuid,
    /// Whether to connect read-only, because of the configuration or of the export.
    pub(super) read_only: bool,
}

/// The target and export that one session looks for, and the Offers that match. It chooses which of
/// them to connect to, and keeps to that target and export once the session was connected.
pub(super) struct TargetSearch {
    target: TargetId,
    export: ExportId,
    /// The target and export that were found. They no longer change once the session was connected.
    resolved: Option<ResolvedExport>,
    is_settled: bool,
    /// The public key that the target has to prove it owns, if the session has keys. Several
    /// targets may offer the export then: they are tried one after the other, and if the Offers of
    /// some have this key, only those.
    key: Option<PublicKey>,
    /// The UUID of the target that has proved before that it owns the key.
    known_target: Option<Uuid>,
    /// The number of targets that were tried one after the other. It selects the next one.
    turn: usize,
    /// Targets that offer the export, until one is taken.
    offers: Sample<(OfferedBy, ResolvedExport), OFFERS_MAX>,
}

/// The effect of an Offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It does not have the wanted export, or is of another target.
    Nothing,
    /// The target offers the wanted export. `shows_key`: it says that it has the wanted key.
    Wanted { shows_key: bool },
    /// The target has another disk under the export's name than before.
    Changed,
}

impl TargetSearch {
    /// `known`: target, export and whether it is read-only, if they are settled already.
    /// `keys`: those of a session whose target proves who it is.
    pub(super) fn new(
        (target, export): (TargetId, ExportId),
        keys: Option<&HostKeys>,
        known: Option<(Uuid, Uuid, bool)>,
    ) -> Self {
        let resolved =
            known.map(|(target, export, read_only)| ResolvedExport { target, export, read_only });
        let is_settled = resolved.is_some();
        let (key, known_target) =
            (keys.map(|keys| keys.target), keys.and_then(|keys| keys.target_uuid));
        let offers = Sample::new();
        Self { target, export, resolved, is_settled, key, known_target, turn: 0, offers }
    }

    /// The Discover to send.
    pub(super) fn discover(&self, nonce: u64, host: Uuid) -> Discover {
        let (name, uuid) = match self.export {
            ExportId::Name(name) => (name, Uuid::nil()),
            ExportId::Uuid(uuid) => (Name::EMPTY, uuid),
        };
        let target = match (self.resolved, self.target) {
            (Some(resolved), _) if self.is_settled => resolved.target,
            (_, TargetId::Uuid(target)) => target,
            _ => self.known_target.unwrap_or_default(),
        };
        Discover { target, uuid, name, ..Discover::any(nonce, host) }
    }

    /// Takes an Offer; `read_only`: the session will not write. `random`: a random number.
    pub(super) fn hear(&mut self, offer: &Offer, read_only: bool, random: u64) -> Heard {
        let Some(export) = offer.exports.iter().find(|export| self.export.names(export)) else {
            return Heard::Nothing;
        };
        let by = OfferedBy { target: offer.target, name: offer.name };
        // A target that proves who it is grants what there is.
        let read_only = read_only || export.geometry.read_only && self.key.is_none();
        let shows_key = self.key.is_some_and(|key| offer.key == Some(*key.as_bytes()));
        let resolved = ResolvedExport { target: offer.target, export: export.uuid, read_only };
        if let Some(known) = self.resolved {
            return match () {
                () if known.target != resolved.target => Heard::Nothing,
                () if known.export == resolved.export => Heard::Wanted { shows_key },
                () if self.is_settled => Heard::Changed,
                () => Heard::Nothing,
            };
        }
        let is_known = self.known_target.is_none_or(|known| known == by.target);
        if !is_known || !self.target.names(&by) {
            return Heard::Nothing;
        }
        let is_known = self.offers.iter().any(|((other, _), _)| other.target == by.target);
        if !is_known && !self.offers.take((by, resolved), shows_key, random) {
            return Heard::Nothing;
        }
        Heard::Wanted { shows_key }
    }

    /// The target and export to connect to, if the export was offered.
    ///
    /// # Errors
    /// Two of the targets, if several offer it and none has to prove who it is.
    pub(super) fn choose(&mut self) -> Result<Option<ResolvedExport>, Box<[OfferedBy; 2]>> {
        if self.resolved.is_none() {
            let shown = self.offers.iter().any(|&(_, shows_key)| shows_key);
            let offers = self.offers.iter().filter(|&&(_, shows_key)| shows_key == shown);
            let offers: ArrayVec<_, OFFERS_MAX> = offers.map(|&(offer, _)| offer).collect();
            match *offers {
                [] => {}
                [(_, resolved)] => self.resolved = Some(resolved),
                _ if self.key.is_some() => {
                    self.resolved = Some(offers[self.turn % offers.len()].1);
                    self.turn += 1;
                }
                [(one, _), (other, _), ..] => return Err(Box::new([one, other])),
            }
        }
        Ok(self.resolved)
    }

    /// Looks for the target by another key from now on: it has proved the former one.
    pub(super) fn set_key(&mut self, key: PublicKey) {
        self.key = Some(key);
    }

    /// Whether the session was ever connected: from then on target and export stay.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Notes that the session is connected.
    pub(super) fn settle(&mut self, read_only: bool) {
        self.is_settled = true;
        if let Some(resolved) = &mut self.resolved {
            resolved.read_only |= read_only;
        }
    }

    /// Forgets the target that was found, to look for another, unless it is settled.
    pub(super) fn reconsider(&mut self) {
        if !self.is_settled {
            self.resolved = None;
            self.offers.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use tyche_crypto::SecretKey;
    use tyche_wire::{Geometry, Versions};

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn uuid(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn offer(target: u128, exports: &[(&str, u128)]) -> Offer {
        let info = |&(text, n): &(&str, u128)| ExportInfo {
            name: name(text),
            uuid: uuid(n),
            geometry: Geometry::new(4096, 512),
            held: false,
            shared: false,
        };
        let exports: ArrayVec<_, _> = exports.iter().map(info).collect();
        Offer {
            nonce: 1,
            versions: Versions::OURS,
            target: uuid(target),
            name: name(&format!("target-{target}")),
            first: 0,
            total: exports.len() as u16,
            exports,
            key: None,
        }
    }

    const WANTED: Heard = Heard::Wanted { shows_key: false };

    fn search(target: TargetId) -> TargetSearch {
        TargetSearch::new((target, ExportId::Name(name("disk"))), None, None)
    }

    fn key(number: u8) -> PublicKey {
        SecretKey::from_random([number; 32]).public()
    }

    /// The keys of a session. `target_uuid`: that of its target, if it is known.
    fn keys(target_uuid: Option<Uuid>) -> HostKeys {
        HostKeys { secret: SecretKey::from_random([1; 32]), target: key(1), target_uuid }
    }

    fn keyed() -> TargetSearch {
        TargetSearch::new((TargetId::Any, ExportId::Name(name("disk"))), Some(&keys(None)), None)
    }

    #[test]
    fn exports_are_named_with_or_without_their_target() {
        let id = "7a26e711-2233-4455-a677-8899aabbccdd";
        let by_uuid = Uuid::parse_str(id).expect("a UUID");
        let named = |text: &str| ExportId::Name(name(text));
        let cases = [
            ("disk", TargetId::Any, named("disk")),
            ("depot/disk", TargetId::Name(name("depot")), named("disk")),
            ("depot/a/b", TargetId::Name(name("depot")), named("a/b")),
            ("/a/b", TargetId::Any, named("a/b")),
            (id, TargetId::Any, ExportId::Uuid(by_uuid)),
        ];
        for (text, target, export) in cases {
            assert_eq!(parse_export(text), Some((target, export)), "{text}");
        }
        let both = parse_export(&format!("{id}/{id}"));
        assert_eq!(both, Some((TargetId::Uuid(by_uuid), ExportId::Uuid(by_uuid))));
        for text in ["", "depot/", "/", "a\nb", "x".repeat(64).as_str()] {
            assert_eq!(parse_export(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_only_one_that_offers_it_is_taken() {
        let mut search = search(TargetId::Any);
        assert_eq!(search.choose(), Ok(None));
        assert_eq!(search.hear(&offer(1, &[("other", 9)]), false, 0), Heard::Nothing);
        assert_eq!(search.hear(&offer(2, &[("disk", 7)]), false, 0), WANTED);
        let resolved = ResolvedExport { target: uuid(2), export: uuid(7), read_only: false };
        assert_eq!(search.choose(), Ok(Some(resolved)));
        assert_eq!(search.hear(&offer(3, &[("disk", 8)]), false, 0), Heard::Nothing, "too late");
        search.reconsider();
        assert_eq!(search.hear(&offer(3, &[("disk", 8)]), true, 0), WANTED);
        assert!(
            search
                .choose()
                .is_ok_and(|resolved| resolved.is_some_and(|resolved| resolved.read_only))
        );
    }

    #[test]
    fn of_two_none_is_taken_unless_one_is_named() {
        let mut any = search(TargetId::Any);
        for target in [1, 2, 1] {
            any.hear(&offer(target, &[("disk", 7)]), false, 0);
        }
        assert!(any.choose().is_err_and(|both| both.map(|by| by.target) == [uuid(1), uuid(2)]));
        for target in [TargetId::Name(name("target-2")), TargetId::Uuid(uuid(2))] {
            let mut named = search(target);
            assert_eq!(named.hear(&offer(1, &[("disk", 7)]), false, 0), Heard::Nothing);
            assert_eq!(named.hear(&offer(2, &[("disk", 7)]), false, 0), WANTED);
            assert!(
                named
                    .choose()
                    .is_ok_and(|resolved| resolved.is_some_and(|it| it.target == uuid(2)))
            );
        }
    }

    #[test]
    fn an_offer_of_nobody_does_not_take_the_right_to_write() {
        let mut read_only = offer(1, &[("disk", 7)]);
        read_only.exports[0].geometry.read_only = true;
        for keys in [None, Some(&keys(None))] {
            let wanted = (TargetId::Any, ExportId::Name(name("disk")));
            let mut search = TargetSearch::new(wanted, keys, None);
            search.hear(&read_only, false, 0);
            let resolved = search.choose().expect("no user has to choose").expect("it was offered");
            assert_eq!(resolved.read_only, keys.is_none());
        }
    }

    #[test]
    fn of_several_that_must_prove_who_they_are_each_has_its_turn() {
        let mut search = keyed();
        let mut targets = Vec::new();
        for _ in 0..4 {
            for target in [1, 2] {
                search.hear(&offer(target, &[("disk", 7)]), false, 0);
            }
            let resolved = search.choose().expect("no user has to choose").expect("it was offered");
            targets.push(resolved.target.as_u128());
            search.reconsider();
        }
        assert_eq!(targets, [1, 2, 1, 2]);
    }

    /// Forged offers, however many and early, do not push the one out that shows the key.
    #[test]
    fn the_target_that_shows_its_key_is_preferred() {
        let mut search = keyed();
        for target in 10..1000 {
            let other = (target % 2 == 0).then(|| *key(2).as_bytes());
            let forged = Offer { key: other, ..offer(target, &[("disk", 7)]) };
            search.hear(&forged, false, target as u64);
        }
        let genuine = Offer { key: Some(*key(1).as_bytes()), ..offer(1, &[("disk", 7)]) };
        assert_eq!(search.hear(&genuine, false, 0), Heard::Wanted { shows_key: true });
        for target in 10..1000 {
            search.hear(&offer(target, &[("disk", 7)]), false, target as u64);
        }
        for _ in 0..2 {
            let resolved = search.choose().expect("no user has to choose").expect("it was offered");
            assert_eq!(resolved.target, uuid(1));
        }
    }

    /// Whatever another Offer says its name is.
    #[test]
    fn a_known_target_has_the_uuid_that_it_had() {
        for target in [TargetId::Name(name("target-1")), TargetId::Any] {
            let wanted = (target, ExportId::Name(name("disk")));
            let mut search = TargetSearch::new(wanted, Some(&keys(Some(uuid(1)))), None);
            assert_eq!(search.discover(5, uuid(4)).target, uuid(1));
            let other = Offer { name: name("target-1"), ..offer(2, &[("disk", 7)]) };
            assert_eq!(search.hear(&other, false, 0), Heard::Nothing);
            assert_eq!(search.choose(), Ok(None));
            assert_eq!(search.hear(&offer(1, &[("disk", 7)]), false, 0), WANTED);
        }
    }

    #[test]
    fn once_connected_target_and_disk_stay() {
        let mut search = search(TargetId::Any);
        search.hear(&offer(1, &[("disk", 7)]), false, 0);
        assert!(search.choose().is_ok());
        search.settle(false);
        search.reconsider();
        assert_eq!(search.hear(&offer(2, &[("disk", 7)]), false, 0), Heard::Nothing);
        assert_eq!(search.hear(&offer(1, &[("disk", 8)]), false, 0), Heard::Changed);
        assert_eq!(search.hear(&offer(1, &[("disk", 7)]), false, 0), WANTED);
        assert_eq!(search.discover(5, uuid(4)).target, uuid(1));
    }
}
