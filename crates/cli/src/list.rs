//! `tyche list`: the sessions and targets of this machine, and the state of each.

use clap::Args;
use serde_json::{Value, json};

use crate::error::Result;
use crate::health;
use crate::links::mtu;
use crate::output::{Format, Table, bytes, show};
use crate::sessions::{Session, targets};

/// List the connected exports of this machine, and the targets that run here.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn run(args: &ListArgs) -> Result<()> {
    let sessions = Session::all()?;
    let targets: Vec<_> = targets()?.into_iter().map(|(_, report)| report).collect();
    show(
        args.output,
        || {
            let sessions: Vec<_> = sessions.iter().map(|it| &it.report).collect();
            json!({ "schema": "tyche.list/1", "sessions": sessions, "targets": targets })
        },
        || {
            let mut text = String::new();
            if !sessions.is_empty() || targets.is_empty() {
                text += &session_table(&sessions);
                text.extend(sessions.iter().filter_map(remark));
            }
            if !targets.is_empty() {
                text += &target_table(&targets);
            }
            let of_sessions = sessions.iter().flat_map(|it| health::of_session(&it.report));
            let notes = of_sessions.chain(targets.iter().flat_map(health::of_target));
            notes.fold(text, |text, note| text + &note + "\n")
        },
    );
    Ok(())
}

fn session_table(sessions: &[Session]) -> String {
    let mut table = Table::new(["EXPORT", "DEVICE", "SIZE", "STATE", "LINKS", "SESSION"]);
    for session in sessions {
        let links = session.report["links"].as_array().map_or(&[][..], Vec::as_slice);
        let links = links.iter().map(|link| {
            let name = link["interface"].as_str().unwrap_or_default();
            match (link["problem"].as_str(), narrowed(link)) {
                (Some(problem), _) => format!("{name} ({problem})"),
                (None, Some(narrowed)) => format!("{name} ({narrowed})"),
                (None, None) => format!("{name} ({} B frames)", link["frame_len"]),
            }
        });
        table.row([
            session.text("export").to_owned(),
            session.text("device").to_owned(),
            bytes(session.report["disk"]["size"].as_u64().unwrap_or_default()),
            state(&session.report),
            links.collect::<Vec<_>>().join(", "),
            session.text("session").to_owned(),
        ]);
    }
    table.to_string()
}

/// The remark about a link whose path takes only shorter frames than its interface.
fn narrowed(link: &Value) -> Option<String> {
    let (found, own) = (link["frame_len"].as_u64()?, link["frame_len_max"].as_u64()?);
    (found < own).then(|| format!("{found} B frames, though its MTU is {}", mtu(own)))
}

/// The state for people, with the remaining time of a session whose target is lost.
pub(crate) fn state(report: &Value) -> String {
    let state = report["state"].as_str().unwrap_or_default();
    match (state, report["lost_for_s"].as_f64(), report["time_left_s"].as_f64()) {
        ("lost", Some(lost), Some(left)) => {
            format!("lost for {lost:.0} s, requests fail in {left:.0} s")
        }
        ("lost", Some(lost), None) => format!("lost for {lost:.0} s, requests wait"),
        ("dead", ..) if report["waits"] == true => {
            "its daemon died: requests wait for another `tyche connect`".to_owned()
        }
        ("dead", ..) if report["ended"] == true => "disconnected, still in use".to_owned(),
        ("dead", ..) => "its daemon died".to_owned(),
        _ => state.to_owned(),
    }
}

/// A line below the table: the problem of a session, and the remedy.
pub(crate) fn remark(session: &Session) -> Option<String> {
    let Session { report, .. } = session;
    let name = session.text("export");
    let device = session.text("device");
    if session.is_dead() {
        let log = report["log"].as_str().map(|log| format!("; its log: {log}"));
        let commands = report["clear"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let commands = commands.map(|command| format!("`{command}`")).collect::<Vec<_>>();
        let clear = match &commands[..] {
            [] => "until the last program closes it".to_owned(),
            commands => format!("to clear it: {}", commands.join(", ")),
        };
        return Some(format!("{name} ({device}): {clear}{}\n", log.unwrap_or_default()));
    }
    let problem = report["problem"].as_str()?;
    Some(format!("{name} ({device}): {problem}\n"))
}

fn target_table(targets: &[Value]) -> String {
    let mut table = Table::new(["TARGET", "EXPORT", "SIZE", "HOSTS"]);
    for target in targets {
        for export in target["exports"].as_array().map_or(&[][..], Vec::as_slice) {
            let hosts = export["sessions"].as_array().map_or(&[][..], Vec::as_slice);
            let hosts = hosts.iter().map(|it| it["host_name"].as_str().unwrap_or_default());
            table.row([
                target["name"].as_str().unwrap_or_default().to_owned(),
                export["export"].as_str().unwrap_or_default().to_owned(),
                bytes(export["size"].as_u64().unwrap_or_default()),
                hosts.collect::<Vec<_>>().join(", "),
            ]);
        }
    }
    table.to_string()
}
