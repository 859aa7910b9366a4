//! Version negotiation: the fields known of frames of another version.

use tyche_wire::{Greeting, Kind, Reason, Uuid, Versions};

use crate::frames;

/// The golden frame as a peer of another version would send it.
fn of_version(name: &str, version: u8, versions: [u8; 2]) -> Vec<u8> {
    let mut frame = frames::golden(name);
    frame[frames::VERSION] = version;
    frame[72..74].copy_from_slice(&versions);
    frames::mend(&mut frame);
    frame
}

fn greeting(frame: &[u8]) -> Option<Greeting> {
    let (head, payload) = frames::split(frame);
    Greeting::parse(head, payload)
}

#[test]
fn peers_of_other_versions_are_understood_as_far_as_no_version_changes() {
    for (name, kind) in
        [("discover", Kind::Discover), ("offer", Kind::Offer), ("reject", Kind::Reject)]
    {
        let frame = of_version(name, 5, [3, 5]);
        let greeting = greeting(&frame).expect("a good frame");
        assert_eq!((greeting.kind, greeting.versions), (kind, Versions { min: 3, max: 5 }));
        assert_eq!(greeting.nonce.to_le_bytes(), frame[64..72]);
        assert_eq!(greeting.versions.to_string(), "versions 3 to 5");
    }
}

#[test]
fn the_answer_to_another_version_is_a_rejection() {
    let greeting = greeting(&of_version("discover", 5, [3, 5])).expect("a good frame");
    let target = Uuid::from_u128(7);
    let refusal = greeting.refusal(target);
    assert_eq!((refusal.attempt, refusal.reason), (greeting.nonce, Reason::Version));
    assert_eq!((refusal.target, refusal.versions.to_string().as_str()), (target, "version 2"));
}

#[test]
fn nothing_else_is_a_greeting() {
    assert_eq!(greeting(&frames::golden("discover")), None, "of our version");
    assert_eq!(greeting(&of_version("connect", 5, [3, 5])), None, "not of the three");
    assert_eq!(greeting(&of_version("discover", 5, [5, 3])), None, "no range");
    let mut damaged = of_version("discover", 5, [3, 5]);
    damaged[100] ^= 1;
    assert_eq!(greeting(&damaged), None);
    let mut longer = of_version("discover", 5, [3, 5]);
    longer.push(0);
    assert_eq!(greeting(&longer), None);
}
