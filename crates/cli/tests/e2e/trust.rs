//! Known targets: first contact, and what comes after it.

use std::fs;
use std::time::Duration;

use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{
    Accept, Body, ChannelId, Control, Cookie, ExportInfo, Flags, Geometry, Header, Hello, Name,
    Offer, Ticket, Uuid, Versions,
};

use crate::keys::{Keys, make};
use crate::refusals::{expect, refused};
use crate::rig::{DISK, Done, PATIENCE, Rig, Session, Side, Stranger, finish, forged, rig, run};

const SIZE: u64 = 64 << 20;
/// The disk, with the name of the target.
const NAMED: &str = "e2e/disk";

/// A connect of `disk` with the host's own key, and more arguments.
fn connect<'a>(rig: &Rig, key: &'a str, disk: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let link = rig.cable.link(Side::Host);
    [&["connect", disk, "--as", "fuse", "--link", link, "--key", key][..], more].concat()
}

/// Connects the named disk on a terminal, with `--target-key ask`, and types `answer`. What it says
/// is in `stdout`.
fn asked(rig: &Rig, key: &str, answer: &str) -> Done {
    let args = connect(rig, key, NAMED, &["--target-key", "ask"]).join(" ");
    let line = format!("printf '{answer}\\n' | script -qec 'tyche {args}' /dev/null");
    let done = finish(&mut rig.shell(&line), PATIENCE);
    println!("{line}\n{}  {:?}", done.stdout, done.status.code());
    done
}

fn fingerprint(key: &str) -> String {
    key.parse::<PublicKey>().unwrap().fingerprint()
}

/// Makes the target known, as first contact does.
pub(crate) fn know(rig: &Rig, key: &str, target: Uuid) {
    fs::write(rig.path("known-targets"), format!("{key} {target} e2e\n")).unwrap();
}

/// Connects without a word about keys; the session must be sealed.
fn assert_sealed(rig: &Rig, session: Session<'_>) {
    let cipher = rig.ask(&["stats"])["sessions"][0]["cipher"].clone();
    assert!(cipher.as_str().is_some_and(|cipher| cipher.contains('-')), "{cipher}");
    session.disconnect();
}

#[test]
fn a_key_is_shown_once_and_known_from_then_on() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    rig.file("disk.img", SIZE);
    let _target = keys.serve(&rig, &["--export", &rig.export()]);
    let key = rig.path("host.key").display().to_string();
    let (link, list) = (rig.cable.link(Side::Host), rig.path("known-targets"));
    let ours = fingerprint(&keys.target);

    let found = rig.ask(&["discover", "--link", link])["exports"][0].clone();
    assert_eq!(found["target_key"], keys.target.as_str());
    assert_eq!(found["target_fingerprint"], ours.as_str());
    let text = run(&mut rig.tyche(Side::Host, &["discover", "--link", link]));
    assert!(text.contains("KEY") && text.contains(&ours), "{text}");

    let ask = ["--target-key", "ask"];
    let alone = connect(&rig, &key, NAMED, &ask);
    refused(&rig, Side::Host, &alone, 8, &["`e2e` is not known", "on a terminal"]);
    let unnamed = connect(&rig, &key, DISK, &ask);
    refused(&rig, Side::Host, &unnamed, 2, &["TARGET/EXPORT"]);
    let other = fingerprint(&keys.host);
    for (answer, said) in [("no", "was not confirmed"), ("y", "yes, no"), (&other, "not SHA256:")] {
        let done = asked(&rig, &key, answer);
        assert_eq!(done.status.code(), Some(7), "{}", done.stdout);
        assert!(done.stdout.contains(&ours) && done.stdout.contains(said), "{}", done.stdout);
        assert!(!list.exists());
    }
    let done = asked(&rig, &key, "yes");
    assert!(done.success() && done.stdout.contains("is kept in"), "{}", done.stdout);
    let uuid = found["target"].as_str().unwrap();
    assert_eq!(fs::read_to_string(&list).unwrap(), format!("{} {uuid} e2e\n", keys.target));
    run(&mut rig.tyche(Side::Host, &["disconnect", NAMED]));

    // By name and by UUID, with and without the option, and from tychetab.
    let by_uuid = format!("{uuid}/{DISK}");
    for (disk, more) in [(NAMED, &[][..]), (NAMED, &ask), (&by_uuid, &[]), (&by_uuid, &ask)] {
        let args = [&["--as", "fuse", "--link", link, "--key", &key][..], more].concat();
        assert_sealed(&rig, rig.connect_disk(Side::Host, disk, &args));
    }
    let tab = rig.path("tab");
    fs::write(&tab, format!("{NAMED} {link} as=fuse,key={key},target-key=ask\n")).unwrap();
    run(&mut rig.tyche(Side::Host, &["connect-all", &format!("--tab={}", tab.display())]));
    let cipher = rig.ask(&["stats"])["sessions"][0]["cipher"].clone();
    assert!(cipher.is_string(), "{cipher}");
    rig.disconnect_all();
    let bench = ["bench", NAMED, "--link", link, "--key", &key, "--runtime", "0.2"];
    assert!(rig.ask(&bench)["iops"].as_f64() > Some(0.0));
    // Anybody could offer another disk of that name.
    let unnamed = connect(&rig, &key, DISK, &[]);
    refused(&rig, Side::Host, &unnamed, 2, &["name the target", "known-targets"]);

    let known = rig.ask(&["key", "known"]);
    assert_eq!(known["targets"][0]["fingerprint"], ours.as_str());
    assert!(run(&mut rig.tyche(Side::Host, &["key", "known"])).contains(&ours));
    run(&mut rig.tyche(Side::Host, &["key", "forget", "e2e"]));
    assert_eq!(rig.ask(&["key", "known"])["targets"], serde_json::json!([]));
    let forget = ["key", "forget", "e2e"];
    let done = finish(&mut rig.tyche(Side::Host, &forget), PATIENCE);
    expect(&done, &forget, 3, &["`e2e`", "tyche key known"]);
}

#[test]
fn a_target_with_another_key_is_refused_with_both_fingerprints() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    let file = |name: &str| rig.path(name).display().to_string();
    let key = file("host.key");
    rig.file("disk.img", SIZE);
    let before = make(&rig, "before.key");
    know(&rig, &before, Uuid::from_u128(7));
    let target = keys.serve(&rig, &["--export", &rig.export()]);
    let (ours, theirs) = (fingerprint(&before), fingerprint(&keys.target));
    let said = ["HAS CHANGED", &ours, &theirs, "line 1 of", "known-targets", "key forget 'e2e'"];
    refused(&rig, Side::Host, &connect(&rig, &key, NAMED, &[]), 7, &said);
    let link = rig.cable.link(Side::Host);
    let bench = ["bench", NAMED, "--link", link, "--key", &key, "--timeout", "3"];
    refused(&rig, Side::Host, &bench, 7, &said);
    run(&mut rig.tyche(Side::Host, &["key", "forget", "e2e"]));
    assert!(asked(&rig, &key, &theirs).success());
    rig.disconnect_all();
    target.kill();

    // A known target that has no key any more is not connected in the clear.
    let target = rig.serve_again();
    let args = connect(&rig, &key, NAMED, &["--timeout", "3"]);
    refused(&rig, Side::Host, &args, 6, &["says that it has no key", "line 1 of"]);
    assert_eq!(rig.ask(&["list"])["targets"][0]["exports"][0]["sessions"], serde_json::json!([]));
    target.kill();
    fs::write(rig.path("known-targets"), "nonsense\n").unwrap();
    refused(&rig, Side::Host, &args, 8, &["known-targets: line 1: "]);
}

/// Somebody who passes for the target, without its key: he answers whatever a host asks.
struct Imposter {
    stranger: Stranger,
    key: PublicKey,
    target: Uuid,
}

impl Imposter {
    fn answer(&mut self) {
        let (ours, mut answers) = (self.stranger.mac(), Vec::new());
        let Self { stranger, key, target } = self;
        stranger.hear(|heard| {
            let Body::Control(pdu) = heard.parsed().body else { return };
            let (flags, answer) = match pdu.decode() {
                Control::Discover(discover) => (Flags::NONE, offer(discover.nonce, *target, key)),
                Control::Hello(hello) => {
                    let ticket = Ticket([7; Ticket::LEN]);
                    (Flags::REPLY, Control::Hello(Hello { ticket, ..hello }))
                }
                Control::Connect(it) => (Flags::NONE, accept(it.attempt, *target, it.export)),
                Control::SealedConnect(it) => (Flags::NONE, accept(it.attempt, *target, EXPORT)),
                _ => return,
            };
            let header = Header { flags, ..Header::new(answer.kind()) };
            answers.push(forged((heard.source(), ours), header, Some(answer)));
        });
        stranger.send(&answers);
        stranger.wait(Duration::from_millis(20));
    }

    /// Runs one of our commands while he answers.
    fn during(&mut self, rig: &Rig, args: &[&str]) -> Done {
        std::thread::scope(|scope| {
            let command = scope.spawn(|| finish(&mut rig.tyche(Side::Host, args), PATIENCE));
            while !command.is_finished() {
                self.answer();
            }
            command.join().unwrap()
        })
    }
}

const EXPORT: Uuid = Uuid::from_u128(8);

fn offer(nonce: u64, target: Uuid, key: &PublicKey) -> Control {
    let export = ExportInfo {
        name: Name::new(DISK).unwrap(),
        uuid: EXPORT,
        geometry: Geometry::new(SIZE, 512),
        held: false,
        shared: false,
    };
    Control::Offer(Offer {
        nonce,
        versions: Versions::OURS,
        target,
        name: Name::new("e2e").unwrap(),
        first: 0,
        total: 1,
        exports: std::iter::once(export).collect(),
        key: Some(*key.as_bytes()),
    })
}

fn accept(attempt: u64, target: Uuid, export: Uuid) -> Control {
    Control::Accept(Accept {
        attempt,
        target,
        generation: Uuid::from_u128(9),
        export,
        geometry: Geometry::new(SIZE, 512),
        cookie: Cookie(9),
        channel: ChannelId(0),
        queue_size: 8,
        rings: [64; 2],
        frame_len: 1500,
        damq_pages: 256,
        checksum: true,
        stages: false,
        block_status: false,
        keep_alive_ms: 3000,
    })
}

#[test]
fn who_passes_for_a_known_target_gets_no_session() {
    let rig = rig!();
    rig.cable.lay_hub("hub", &[(Side::Host, "tye-h0"), (Side::Host, "tye-s0")]);
    let keys = Keys::new(&rig);
    let (key, target) = (rig.path("host.key").display().to_string(), Uuid::from_u128(7));
    let stranger = Stranger::new(&rig.cable, "tye-s0");
    let mut imposter = Imposter { stranger, key: keys.target.parse().unwrap(), target };
    let clear = ["connect", NAMED, "--as", "nbd-socket", "--link", "tye-h0", "--timeout", "4"];
    // A host that knows no key takes him for the target.
    let done = imposter.during(&rig, &clear);
    assert!(done.success(), "{}", done.stderr);
    run(&mut rig.tyche(Side::Host, &["disconnect", "--all", "--force"]));

    know(&rig, &keys.target, target);
    let sealed = [&clear[..], &["--key", &key]].concat();
    let done = imposter.during(&rig, &sealed);
    expect(&done, &sealed, 6, &["somebody without the target's key answers in its place"]);
    // Nor does he if he says a key of his own.
    imposter.key = keys.host.parse().unwrap();
    let done = imposter.during(&rig, &sealed);
    let theirs = fingerprint(&keys.host);
    expect(&done, &sealed, 7, &["HAS CHANGED", &fingerprint(&keys.target), &theirs]);
    assert_eq!(rig.ask(&["list"])["sessions"], serde_json::json!([]));
}
