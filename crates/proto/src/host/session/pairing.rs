//! Pairs local links with the target's interfaces.
//!
//! If each pair of interfaces has a segment of its own, there is no choice. On a common switch,
//! every link hears all of the target's addresses, and each NIC of both sides should carry its
//! part. So as many links as possible get an address of their own (a maximum matching); then the
//! remaining links share addresses, and the remaining addresses share links.

use tyche_wire::Mac;

/// A local link, by index, and an address of the target.
pub(super) type Pair = (usize, Mac);

/// The pairs to be added to `taken`, so that every link that hears the target and every address
/// that is heard are in a pair. `heard`: for each link, the addresses that it hears.
pub(super) fn pair(heard: &[impl AsRef<[Mac]>], taken: &[Pair]) -> Vec<Pair> {
    let mut addresses: Vec<_> = heard.iter().flat_map(AsRef::as_ref).copied().collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mut pairs = taken.to_vec();
    let free = |pairs: &[Pair], mac: Mac| pairs.iter().all(|&(_, it)| it != mac);
    let open: Vec<_> = addresses.iter().copied().filter(|&mac| free(&pairs, mac)).collect();
    let idle = (0..heard.len()).filter(|&link| pairs.iter().all(|&(it, _)| it != link));
    let idle: Vec<_> = idle.collect();

    // For each address in `open`: the link that it is matched with.
    let mut given = vec![None; open.len()];
    for &link in &idle {
        let mut seen = vec![false; open.len()];
        augment(link, heard, &open, &mut given, &mut seen);
    }
    let matched = open.iter().zip(&given).filter_map(|(&mac, link)| Some(((*link)?, mac)));
    pairs.extend(matched);

    for link in idle {
        if pairs.iter().any(|&(it, _)| it == link) {
            continue;
        }
        let load = |mac: &Mac| pairs.iter().filter(|pair| pair.1 == *mac).count();
        if let Some(&mac) = heard[link].as_ref().iter().min_by_key(|&mac| load(mac)) {
            pairs.push((link, mac));
        }
    }
    for mac in addresses {
        if !free(&pairs, mac) {
            continue;
        }
        let load = |link: &usize| pairs.iter().filter(|pair| pair.0 == *link).count();
        let hears = |&link: &usize| heard[link].as_ref().contains(&mac);
        if let Some(link) = (0..heard.len()).filter(hears).min_by_key(load) {
            pairs.push((link, mac));
        }
    }
    pairs.split_off(taken.len())
}

/// Matches a link with an address, moving other links to other addresses if needed (Kuhn 1955);
/// false if that is impossible.
fn augment(
    link: usize,
    heard: &[impl AsRef<[Mac]>],
    open: &[Mac],
    given: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for (index, mac) in open.iter().enumerate() {
        if seen[index] || !heard[link].as_ref().contains(mac) {
            continue;
        }
        seen[index] = true;
        let holder = given[index];
        if holder.is_none_or(|other| augment(other, heard, open, given, seen)) {
            given[index] = Some(link);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(n: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, n])
    }

    fn macs(numbers: &[u8]) -> Vec<Mac> {
        numbers.iter().copied().map(mac).collect()
    }

    #[test]
    fn segments_of_their_own_leave_no_choice() {
        let heard = [macs(&[1]), macs(&[2]), macs(&[])];
        assert_eq!(pair(&heard, &[]), [(0, mac(1)), (1, mac(2))]);
    }

    #[test]
    fn on_one_switch_every_nic_has_a_part() {
        for (links, addresses) in [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1)] {
            let all: Vec<_> = (0..addresses).collect();
            let heard = vec![macs(&all); links];
            let pairs = pair(&heard, &[]);
            assert_eq!(pairs.len(), links.max(addresses.into()), "{links} and {addresses}");
            assert!((0..links).all(|link| pairs.iter().any(|pair| pair.0 == link)));
            assert!(macs(&all).iter().all(|mac| pairs.iter().any(|pair| pair.1 == *mac)));
        }
    }

    #[test]
    fn a_link_with_a_choice_leaves_the_only_address_to_who_has_none() {
        let heard = [macs(&[1, 2]), macs(&[1])];
        assert_eq!(pair(&heard, &[]), [(1, mac(1)), (0, mac(2))]);
    }

    #[test]
    fn what_is_paired_stays_and_what_is_new_is_added() {
        let heard = [macs(&[1, 2]), macs(&[1, 2]), macs(&[3])];
        assert_eq!(pair(&heard, &[(0, mac(2))]), [(1, mac(1)), (2, mac(3))]);
        assert_eq!(pair(&heard, &[(0, mac(2)), (1, mac(1)), (2, mac(3))]), []);
    }

    #[test]
    fn two_segments_with_the_same_address_are_two_pairs() {
        assert_eq!(pair(&[macs(&[7]), macs(&[7])], &[]), [(0, mac(7)), (1, mac(7))]);
    }
}
