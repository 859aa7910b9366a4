//! The guests that are connected, and the one that has to go for another.
//!
//! A guest has proved nothing at first. There are few places for such guests, fewer for those of
//! one address, and the oldest yields to a new one, so that an admin always gets a place. Once it
//! has proved that it is one, it has a place of another kind, which no stranger can take. One key
//! gets half of these at most: an admin whose key was stolen does not keep out the one who comes to
//! remove it. If all are taken, the admin yields for which the target has waited longest: it has
//! not asked yet or again, or does not take its answer. So programs that hang keep nobody out.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tyche_crypto::PublicKey;

/// Bounds on guests at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of those who have proved nothing.
    pub strangers: usize,
    /// Of these, of one IPv4 address, or of one /64 of IPv6.
    pub strangers_of_one: usize,
    /// Of admins.
    pub admins: usize,
    /// Of these, with one key.
    pub admins_of_one: usize,
    /// An admin for which the target has waited for so long makes room for another.
    pub silence: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let silence = Duration::from_secs(1);
        Self { strangers: 32, strangers_of_one: 8, admins: 32, admins_of_one: 16, silence }
    }
}

impl Bounds {
    /// Threads at a time: those who have just lost their places still end.
    pub(crate) fn threads(self) -> usize {
        2 * self.strangers + self.admins
    }
}

/// The network of a guest: an IPv4 address, or what one machine may have of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    V4(u32),
    V6(u64),
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// A number for each guest, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestId(u64);

/// The guests, in the order in which they came. `H` closes a connection.
#[derive(Debug)]
pub(crate) struct Guests<H> {
    bounds: Bounds,
    next: u64,
    list: Vec<Guest<H>>,
}

#[derive(Debug)]
struct Guest<H> {
    id: GuestId,
    origin: Origin,
    /// Of an admin.
    key: Option<PublicKey>,
    /// Since when the target waits for it; `None`: a request of it is being executed.
    silent_since: Option<Instant>,
    handle: H,
}

/// The outcome of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The guest has a place among the admins.
    Taken,
    /// They are too many, or those with its key are.
    Full,
    /// It has had to go meanwhile.
    Lost,
}

impl<H> Guests<H> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, next: 0, list: Vec::new() }
    }

    fn strangers(&self) -> impl DoubleEndedIterator<Item = &Guest<H>> {
        self.list.iter().filter(|guest| guest.key.is_none())
    }

    fn strangers_of(&self, origin: Origin) -> usize {
        self.strangers().filter(|guest| guest.origin == origin).count()
    }

    /// Lets a guest in; returns who has to go for that.
    pub(crate) fn enter(&mut self, address: IpAddr, handle: H) -> (GuestId, Option<H>) {
        let origin = Origin::from(address);
        let of = if self.strangers_of(origin) >= self.bounds.strangers_of_one {
            Some(origin)
        } else if self.strangers().count() >= self.bounds.strangers {
            // The oldest of the address that has most.
            let of_each = self.strangers().map(|guest| guest.origin);
            of_each.rev().max_by_key(|origin| self.strangers_of(*origin))
        } else {
            None
        };
        let displaced = of.and_then(|of| {
            let is_one = |guest: &Guest<H>| guest.key.is_none() && guest.origin == of;
            let oldest = self.list.iter().position(is_one)?;
            Some(self.list.remove(oldest).handle)
        });
        let id = GuestId(self.next);
        self.next += 1;
        self.list.push(Guest { id, origin, key: None, silent_since: None, handle });
        (id, displaced)
    }

    /// Gives a guest a place among the admins; returns who has to go for that.
    pub(crate) fn prove(
        &mut self,
        id: GuestId,
        key: PublicKey,
        now: Instant,
    ) -> (Place, Option<H>) {
        if self.list.iter().all(|guest| guest.id != id) {
            return (Place::Lost, None);
        }
        let admins = || self.list.iter().filter_map(|guest| guest.key.as_ref());
        let mut displaced = None;
        let has_key_all = admins().filter(|of| **of == key).count() >= self.bounds.admins_of_one;
        if has_key_all || admins().count() >= self.bounds.admins {
            let Some(silent) = self.silent_admin(now, |of| !has_key_all || *of == key) else {
                return (Place::Full, None);
            };
            displaced = Some(self.list.remove(silent).handle);
        }
        if let Some(guest) = self.list.iter_mut().find(|guest| guest.id == id) {
            (guest.key, guest.silent_since) = (Some(key), Some(now));
        }
        (Place::Taken, displaced)
    }

    /// The admin of these for which the target has waited longest, if that is long enough.
    fn silent_admin(&self, now: Instant, is_one: impl Fn(&PublicKey) -> bool) -> Option<usize> {
        let silent = self.list.iter().enumerate().filter_map(|(index, guest)| {
            let since = guest.silent_since.filter(|_| guest.key.as_ref().is_some_and(&is_one))?;
            (now.saturating_duration_since(since) >= self.bounds.silence).then_some((since, index))
        });
        silent.min().map(|(_, index)| index)
    }

    /// Notes since when the target waits for an admin, or that a request of it is being executed.
    pub(crate) fn note_silence(&mut self, id: GuestId, since: Option<Instant>) {
        let guest = self.list.iter_mut().find(|guest| guest.id == id);
        guest.into_iter().for_each(|guest| guest.silent_since = since);
    }

    pub(crate) fn leave(&mut self, id: GuestId) {
        self.list.retain(|guest| guest.id != id);
    }

    /// Takes the guests out for whom this is true of their key; returns them.
    pub(crate) fn take(&mut self, mut goes: impl FnMut(Option<&PublicKey>) -> bool) -> Vec<H> {
        let (gone, left) = std::mem::take(&mut self.list)
            .into_iter()
            .partition(|guest: &Guest<H>| goes(guest.key.as_ref()));
        self.list = left;
        let gone: Vec<Guest<H>> = gone;
        gone.into_iter().map(|guest| guest.handle).collect()
    }
}

#[cfg(test)]
mod tests {
    use tyche_crypto::SecretKey;

    use super::*;

    fn bounds() -> Bounds {
        let silence = Duration::from_secs(1);
        Bounds { strangers: 4, strangers_of_one: 2, admins: 3, admins_of_one: 2, silence }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_oldest_of_an_address_yields_to_a_new_one_of_it() {
        let mut guests = Guests::new(bounds());
        let one = address("10.0.0.1");
        assert_eq!(guests.enter(one, 1).1, None);
        assert_eq!(guests.enter(address("10.0.0.2"), 2).1, None);
        assert_eq!(guests.enter(one, 3).1, None);
        assert_eq!(guests.enter(address("::ffff:10.0.0.1"), 4).1, Some(1), "the same address");
        assert_eq!(guests.enter(one, 5).1, Some(3));
        assert_eq!(guests.enter(address("2001:db8::1"), 6).1, None);
        assert_eq!(guests.enter(address("2001:db8::2:1:1"), 7).1, Some(4), "of who has most");
        assert_eq!(guests.enter(address("2001:db8::3"), 8).1, Some(6), "one /64");
        assert_eq!(guests.enter(address("2001:db8:0:1::3"), 9).1, Some(7));
    }

    #[test]
    fn admins_have_places_that_no_stranger_takes() {
        let mut guests = Guests::new(bounds());
        let (one, now) = (address("10.0.0.1"), Instant::now());
        let keys = [1, 2, 3].map(|number| SecretKey::from_random([number; 32]).public());
        let (first, _) = guests.enter(one, 0);
        assert_eq!(guests.prove(first, keys[0], now).0, Place::Taken);
        for guest in 1..100 {
            assert_ne!(guests.enter(one, guest).1, Some(0));
        }
        let (second, _) = guests.enter(one, 100);
        assert_eq!(guests.prove(second, keys[1], now).0, Place::Taken);
        let (again, _) = guests.enter(one, 101);
        assert_eq!(guests.prove(again, keys[1], now).0, Place::Taken);
        let (third, _) = guests.enter(one, 102);
        assert_eq!(guests.prove(third, keys[2], now).0, Place::Full);
        guests.leave(second);
        assert_eq!(guests.prove(third, keys[2], now).0, Place::Taken);
        let (fourth, _) = guests.enter(one, 103);
        guests.take(|key| key.is_none());
        assert_eq!(guests.prove(fourth, keys[1], now).0, Place::Lost);
        assert_eq!(guests.take(|key| key == Some(&keys[2])), [102]);
        assert_eq!(guests.take(|_| true), [0, 101]);
    }

    #[test]
    fn one_key_leaves_places_to_others() {
        let (mut guests, now) = (Guests::new(bounds()), Instant::now());
        let [greedy, other] = [1, 2].map(|number| SecretKey::from_random([number; 32]).public());
        let mut prove = |key| {
            let (guest, _) = guests.enter(address("10.0.0.1"), 0);
            guests.prove(guest, key, now).0
        };
        assert_eq!([greedy; 3].map(&mut prove), [Place::Taken, Place::Taken, Place::Full]);
        assert_eq!(prove(other), Place::Taken);
    }

    #[test]
    fn the_admin_that_has_been_silent_longest_yields() {
        let (mut guests, begin) = (Guests::new(bounds()), Instant::now());
        let keys = [1, 2, 3].map(|number| SecretKey::from_random([number; 32]).public());
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let come = |guests: &mut Guests<u32>, handle, key, now| {
            let (id, _) = guests.enter(address("10.0.0.1"), handle);
            (id, guests.prove(id, key, now))
        };
        let (first, _) = come(&mut guests, 0, keys[0], at(0));
        let (second, _) = come(&mut guests, 1, keys[0], at(100));
        assert_eq!(come(&mut guests, 2, keys[0], at(999)).1, (Place::Full, None), "too early");
        guests.note_silence(first, None);
        assert_eq!(
            come(&mut guests, 3, keys[0], at(1000)).1,
            (Place::Full, None),
            "it waits for us"
        );
        assert_eq!(come(&mut guests, 4, keys[0], at(1100)).1, (Place::Taken, Some(1)));
        guests.note_silence(second, None);
        guests.note_silence(first, Some(at(1200)));
        assert_eq!(come(&mut guests, 5, keys[1], at(1200)).1, (Place::Taken, None));
        // All places are taken, and the one that was last given is the first silent one.
        assert_eq!(come(&mut guests, 6, keys[2], at(2050)).1, (Place::Full, None));
        assert_eq!(come(&mut guests, 7, keys[2], at(2100)).1, (Place::Taken, Some(4)));
        assert_eq!(come(&mut guests, 8, keys[2], at(2200)).1, (Place::Taken, Some(0)));
    }
}
