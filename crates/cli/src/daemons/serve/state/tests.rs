//! A target's state over restarts, and the ways in which it can be out of date.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

/// A state directory, and a runtime directory, which a reboot would empty.
struct StateDir {
    dir: tempfile::TempDir,
    is_fcoe: Cell<bool>,
}

const DISK: Disk<'_> = Disk {
    name: "vm1",
    path: "/dev/sdb",
    identity: Some("wwid: one"),
    uuid: None,
    cached: true,
    accepted: false,
};
const THROUGH: Disk<'_> = Disk { cached: false, ..DISK };

impl StateDir {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        Self { dir, is_fcoe: Cell::new(false) }
    }

    /// Starts a target.
    fn start(&self, disk: &Disk<'_>) -> (State, ExportRecord) {
        self.try_start(disk).unwrap()
    }

    fn try_start(&self, disk: &Disk<'_>) -> Result<(State, ExportRecord)> {
        let (dir, notes) = (self.dir.path().join("state"), self.dir.path().join("run"));
        let (exports, luns, leftovers, (removed, renamed)) = Default::default();
        let is_fcoe = self.is_fcoe.get();
        let mut state = State { dir, notes, is_fcoe, exports, luns, leftovers, removed, renamed };
        let known = state.add(disk)?;
        Ok((state, known))
    }

    fn record(&self) -> PathBuf {
        self.dir.path().join("state/exports/vm1.json")
    }

    fn reboot(&self) {
        fs::remove_dir_all(self.dir.path().join("run")).unwrap();
        self.edit("/boot", json!(Uuid::new_v4()));
    }

    /// Changes a field of the record, and nothing about the file.
    fn edit(&self, field: &str, value: Value) {
        let text = fs::read_to_string(self.record()).unwrap();
        let mut record: Value = serde_json::from_str(&text).unwrap();
        *record.pointer_mut(field).unwrap() = value;
        fs::write(self.record(), record.to_string()).unwrap();
    }

    /// Makes writing fail, also for root.
    fn obstruct(&self) {
        fs::create_dir(self.dir.path().join("state/exports/vm1.json.new")).unwrap();
    }
}

#[test]
fn who_it_is_and_who_wrote_outlive_the_process() {
    for disk in [DISK, THROUGH] {
        let home = StateDir::new();
        let (mut state, first) = home.start(&disk);
        state.remember("vm1", nobody()).unwrap();
        let writer = nobody();
        state.remember("vm1", writer).unwrap();
        let (_, second) = home.start(&disk);
        assert_eq!((second.uuid, second.generation), (first.uuid, first.generation));
        assert_eq!(second.writer, Some(writer));
        assert_ne!(first.writer, Some(writer));
    }
}

#[test]
fn a_target_keeps_its_uuid_and_a_clone_gets_another() {
    let home = StateDir::new();
    let (state, _) = home.start(&DISK);
    let uuid = state.target("store1").unwrap();
    assert_eq!(home.start(&DISK).0.target("store1").unwrap(), uuid);
    if identity::keeper().is_none() {
        println!("SKIPPED: this machine has no machine-id");
        return;
    }
    let path = home.dir.path().join("state/target.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["machine"] = json!(Uuid::new_v4());
    fs::write(&path, value.to_string()).unwrap();
    assert_ne!(state.target("store1").unwrap(), uuid);
}

#[test]
fn a_reboot_loses_a_cache_and_nothing_else() {
    let home = StateDir::new();
    let (mut state, before) = home.start(&DISK);
    let writer = nobody();
    state.remember("vm1", writer).unwrap();
    home.reboot();
    let (_, after) = home.start(&DISK);
    assert_eq!(Loss::between(before.generation, after.generation), Some(Loss::Cache));
    assert_eq!((after.uuid, after.writer), (before.uuid, Some(writer)));
    assert_eq!(home.start(&DISK).1.generation, after.generation, "once");

    let home = StateDir::new();
    let (_, before) = home.start(&THROUGH);
    home.reboot();
    assert_eq!(home.start(&THROUGH).1.generation, before.generation);

    // No cache any more; but the cached writes before the reboot are lost.
    let home = StateDir::new();
    let (_, before) = home.start(&DISK);
    assert_eq!(home.start(&THROUGH).1.generation, before.generation);
    home.reboot();
    assert_ne!(home.start(&THROUGH).1.generation, before.generation);
}

#[test]
fn a_loss_outlives_the_process_even_if_it_can_t_be_written() {
    let home = StateDir::new();
    let (mut state, before) = home.start(&DISK);
    let generation = state.renew("vm1", Loss::Cache);
    assert_eq!(Loss::between(before.generation, generation), Some(Loss::Cache));
    assert_eq!(home.start(&DISK).1.generation, generation);
    home.obstruct();
    state = home.start(&DISK).0;
    state.renew("vm1", Loss::Cache);
    let after = home.start(&DISK).1.generation;
    assert_eq!(Loss::between(generation, after), Some(Loss::Content), "nobody knows what it was");
}

/// However the record came back: the last writer and the losses in it are out of date.
#[test]
fn a_record_from_the_past_is_not_believed() {
    for way in ["a copy", "the very file"] {
        let home = StateDir::new();
        let saved = home.dir.path().join("saved");
        let (mut state, before) = home.start(&DISK);
        let stale = nobody();
        state.remember("vm1", stale).unwrap();
        match way {
            "a copy" => fs::copy(home.record(), &saved).map(drop).unwrap(),
            _ => fs::hard_link(home.record(), &saved).unwrap(),
        }
        state.remember("vm1", nobody()).unwrap();
        fs::rename(&saved, home.record()).unwrap();
        let (_, after) = home.start(&DISK);
        assert_ne!(after.writer, Some(stale), "{way}: it must not get back in");
        let loss = Loss::between(before.generation, after.generation);
        assert_eq!(loss, Some(Loss::Content), "{way}");
        assert_eq!(after.uuid, before.uuid);
        assert_eq!(home.start(&DISK).1.generation, after.generation, "once");
    }
}

#[test]
fn a_virtual_machine_that_was_put_back_is_noticed() {
    let home = StateDir::new();
    let (state, _) = home.start(&THROUGH);
    let kept = &state.exports["vm1"];
    let (record, place) = Record::read(&home.record()).unwrap().unwrap();
    let (one, other) = (Some(Uuid::new_v4()), Some(Uuid::new_v4()));
    let record = Record { vm: one, ..record };
    let suspected = |vm| kept.suspected_loss((&record, place), (&THROUGH, false), vm);
    assert_eq!(suspected(one), None);
    assert_eq!(suspected(None), None, "nobody can know");
    let (why, loss) = suspected(other).unwrap();
    assert_eq!(loss, Loss::Content, "{why}: another may have written since");
}

#[test]
fn state_of_another_machine_is_not_ours() {
    let home = StateDir::new();
    let (_, before) = home.start(&DISK);
    home.edit("/place/machine", json!(Uuid::new_v4()));
    let (_, after) = home.start(&DISK);
    assert_ne!(after.uuid, before.uuid, "a clone's disk is another disk");
    assert_ne!(after.generation, before.generation);
}

#[test]
fn another_disk_is_a_question() {
    let home = StateDir::new();
    let (_, before) = home.start(&DISK);
    let other = Disk { identity: Some("wwid: two"), ..DISK };
    let error = home.try_start(&other).err().unwrap();
    println!("{error}");
    assert_eq!(error.code, Code::Config);
    for part in ["wwid: one", "wwid: two", "/dev/sdb", "--accept-changed-disk vm1"] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    assert!(home.try_start(&Disk { identity: None, ..DISK }).is_err(), "nor one that is silent");
    assert_eq!(home.start(&DISK).1.generation, before.generation, "nothing has changed");
    let (_, after) = home.start(&Disk { accepted: true, ..other });
    assert_eq!(after.uuid, before.uuid);
    assert_ne!(after.generation, before.generation);
    assert_ne!(after.writer, before.writer);
    assert_eq!(home.start(&other).1.generation, after.generation, "asked once");
    // Another name is another export.
    assert_ne!(home.start(&Disk { name: "vm2", ..DISK }).1.uuid, before.uuid);
}

#[test]
fn a_disk_that_says_nothing_needs_a_uuid() {
    let home = StateDir::new();
    let silent = Disk { identity: None, ..DISK };
    let error = home.try_start(&silent).err().unwrap();
    println!("{error}");
    assert!(error.code == Code::Config && error.message.contains("uuid = \""), "{error}");
    let uuid = Uuid::new_v4();
    let named = Disk { uuid: Some(uuid), ..silent };
    let (_, before) = home.start(&named);
    assert_eq!(before.uuid, uuid);
    assert_eq!(home.start(&named).1.generation, before.generation);
    // Another UUID is another disk, whatever the record of that name says.
    let renamed = home.start(&Disk { uuid: Some(Uuid::new_v4()), ..named }).1;
    assert_ne!(renamed.generation, before.generation);
}

#[test]
fn state_that_can_t_be_kept_refuses_writers_with_the_remedy() {
    let home = StateDir::new();
    let (mut state, before) = home.start(&DISK);
    home.obstruct();
    let refusal = state.remember("vm1", nobody()).unwrap_err();
    println!("{refusal}");
    assert!(refusal.len() <= REFUSAL_MAX, "{refusal}");
    assert!(!refusal.contains("who writes"), "the reason says so: {refusal}");
    assert_eq!(home.start(&DISK).1.writer, before.writer);
    fs::remove_dir(home.dir.path().join("state/exports/vm1.json.new")).unwrap();
    state.remember("vm1", nobody()).unwrap();

    fs::write(home.record(), "{").unwrap();
    let (mut state, _) = home.start(&DISK);
    let refusal = state.remember("vm1", nobody()).unwrap_err();
    println!("{refusal}");
    assert!(refusal.contains("remove") && refusal.len() <= REFUSAL_MAX, "{refusal}");
    assert_eq!(fs::read_to_string(home.record()).unwrap(), "{", "the evidence stays");
}

#[test]
fn refusals_fit_whatever_the_directory_is_called() {
    let home = StateDir::new();
    let path = PathBuf::from("/a".repeat(100));
    let (record, note) = (fresh(&DISK), home.dir.path().join("n"));
    let kept = Kept { record, note, path, unreadable: None, continues: false };
    use ErrorKind::{Other, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    for kind in [StorageFull, QuotaExceeded, ReadOnlyFilesystem, ErrorKind::InvalidData, Other] {
        let refusal = kept.refusal(&io::Error::new(kind, "é".repeat(100)));
        println!("{refusal}");
        assert!(refusal.len() <= REFUSAL_MAX, "{refusal}");
    }
}

#[test]
fn what_is_gone_with_the_process_is_another_each_time() {
    let home = StateDir::new();
    let (mut state, _) = home.start(&DISK);
    let uuid = Some(Uuid::new_v4());
    let memory = State::passing(uuid, true);
    assert_eq!(Some(memory.uuid), uuid);
    assert_ne!(State::passing(uuid, true).generation, memory.generation);
    let null = State::passing(uuid, false).generation;
    assert_eq!(State::passing(uuid, false).generation, null, "nothing can be lost");
    assert_ne!(state.renew("memory", Loss::Content), memory.generation);
    state.remember("memory", nobody()).unwrap();
}

#[test]
fn sessions_that_were_away_while_fcoe_wrote_are_told_and_hosts_of_fcoe_are_not_at_each_start() {
    let home = StateDir::new();
    let before = home.start(&DISK).1;
    home.is_fcoe.set(true);
    let first = home.start(&DISK).1;
    assert_eq!(Loss::between(before.generation, first.generation), Some(Loss::Content));
    assert_ne!(first.writer, before.writer);
    let second = home.start(&DISK).1;
    assert_eq!(second.generation, first.generation, "started again");
    home.is_fcoe.set(false);
    assert_eq!(home.start(&DISK).1.generation, first.generation);
    home.is_fcoe.set(true);
    let again = home.start(&DISK).1;
    assert_eq!(Loss::between(first.generation, again.generation), Some(Loss::Content));
    home.reboot();
    assert_eq!(Loss::between(again.generation, home.start(&DISK).1.generation), Some(Loss::Cache));
}

#[test]
fn an_export_whose_disk_comes_later_keeps_the_lun_that_it_had_till_then() {
    const LATE: Disk<'_> = Disk { name: "vm2", identity: Some("wwid: two"), ..DISK };
    let home = StateDir::new();
    let (mut state, first) = home.start(&DISK);
    let missing = state.missing("vm2", None);
    let numbers = [("vm1", first.uuid), ("vm2", missing.uuid)];
    assert_eq!(numbers.map(|(name, uuid)| state.lun(name, uuid).unwrap()), [0, 1]);
    let late = state.add(&LATE).unwrap();
    drop(state);
    // Another export is before it now.
    let (mut state, first) = home.start(&DISK);
    let third = state.add(&Disk { name: "vm3", identity: Some("wwid: three"), ..DISK }).unwrap();
    assert_eq!(state.add(&LATE).unwrap().uuid, late.uuid);
    let all = [("vm1", first.uuid), ("vm3", third.uuid), ("vm2", late.uuid)];
    assert_eq!(all.map(|(name, uuid)| state.lun(name, uuid).unwrap()), [0, 2, 1]);
}

#[test]
fn the_record_of_an_export_follows_it_to_another_name() {
    for disk in [DISK, THROUGH] {
        let home = StateDir::new();
        let (mut state, first) = home.start(&disk);
        let mut decisions = state.decisions().unwrap();
        decisions.set("vm1", "alpha", Some(Decision::Denied)).unwrap();
        let writer = Writer { session: Uuid::from_u128(5), ..nobody() };
        state.remember("vm1", writer).unwrap();
        state.rename("vm1", "vm2");
        state.follow("vm1", "vm2");
        state.finish_renames(&mut decisions).unwrap();
        assert!(!state.is_renaming() && !home.record().exists());
        assert_eq!((decisions.of("vm1").count(), decisions.of("vm2").count()), (0, 1));
        // What is recorded later is in the same file.
        let last = Writer { session: Uuid::from_u128(6), ..writer };
        state.remember("vm2", last).unwrap();
        let (_, known) = home.start(&Disk { name: "vm2", ..disk });
        assert_eq!((known.uuid, known.generation), (first.uuid, first.generation));
        assert_eq!(known.writer, Some(last));
        // The former name is that of another disk.
        assert_ne!(home.start(&disk).1.uuid, first.uuid);
    }
}
