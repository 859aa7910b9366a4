//! The page for people: what is wrong, then sessions and targets with their links.

use std::time::UNIX_EPOCH;

use tyche_native::UseCounts;

use super::html::{Cell, Html, Table, escaped};
use super::links::may_lead_elsewhere;
use super::looks::Look;
use super::rates::Rates;
use super::sessions;
use crate::output::bytes;
use crate::shared::health;
use crate::shared::report::{
    ExportReport, Figures, Latency, SessionLink, SessionReport, SessionState, TargetLink,
    TargetPort, TargetReport,
};

/// The frame of the page.
const TEMPLATE: &str = include_str!("page.html");
/// Seconds until the page is loaded again, and if it has no rates yet.
const REFRESH: (&str, &str) = ("5", "2");
/// The sign for an unknown value.
const NONE: &str = "–";

/// Writes the page.
pub(super) fn write(now: &Look, before: Option<&Look>) -> String {
    let rates = Rates::new(now, before);
    let (sessions, targets) = (&now.machine.sessions, &now.machine.targets);
    let mut body = Html::default();
    verdict(&mut body, sessions, targets);
    if !sessions.is_empty() {
        session_card(&mut body, sessions, rates);
    }
    targets.iter().for_each(|target| target_card(&mut body, target, rates));
    let title = format!("Tyche on {}", tyche_session::host_name());
    let counted =
        |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let subtitle = format!(
        "{}, {} at {}",
        counted(sessions.len(), "session"),
        counted(targets.len(), "target"),
        clock(now)
    );
    let refresh = if rates.are_known() { REFRESH.0 } else { REFRESH.1 };
    fill(TEMPLATE, |name| match name {
        "title" => escaped(&title),
        "subtitle" => escaped(&subtitle),
        "refresh" => refresh.to_owned(),
        "body" => body.as_str().to_owned(),
        other => unreachable!("the page has no {other}"),
    })
}

/// Fills in the places `{{NAME}}` of a template, in one go: what is filled in has none.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = template.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("the template is ours");
        filled += &value(name);
        filled += rest;
    }
    filled
}

/// The time of day, in UTC.
fn clock(look: &Look) -> String {
    let seconds = look.time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

/// Says what is wrong, or that nothing is.
fn verdict(page: &mut Html, sessions: &[SessionReport], targets: &[TargetReport]) {
    let mut problems: Vec<_> = sessions.iter().filter_map(not_live).collect();
    problems.extend(sessions.iter().flat_map(health::of_session));
    problems.extend(sessions.iter().flat_map(link_problems));
    problems.extend(targets.iter().flat_map(health::of_target));
    let mut said = Html::default();
    match problems[..] {
        [] if sessions.is_empty() && targets.is_empty() => {
            said.text("p", "", "No session and no target runs on this machine.");
        }
        [] => said.text("p", "", "Nothing is wrong."),
        _ => problems.iter().for_each(|problem| said.text("p", "", problem)),
    }
    let class = if problems.is_empty() { "verdict well" } else { "verdict ill" };
    page.around("div", class, &said);
}

/// The problem of a session that is not live.
fn not_live(session: &SessionReport) -> Option<String> {
    if matches!(session.state, SessionState::Live(_)) {
        return None;
    }
    let why = session.problem().map_or_else(String::new, |problem| format!(": {problem}"));
    let (export, device) = (&session.record.export, session.device());
    Some(format!("session of {export} ({device}) is {}{why}", state(session)))
}

/// The problems of a live session's links, without those that may lead elsewhere.
fn link_problems(session: &SessionReport) -> Vec<String> {
    let is_live = matches!(session.state, SessionState::Live(_));
    let links = session.links().iter().filter(|link| is_live && !may_lead_elsewhere(link));
    let said = links.filter_map(|link| {
        let (export, name) = (&session.record.export, &link.interface);
        Some(format!("session of {export}: link {name}: {}", link.problem.as_ref()?))
    });
    said.collect()
}

/// The state of a session, with the times of a lost target.
fn state(session: &SessionReport) -> String {
    let name = sessions::state(session);
    let lost = session.figures().and_then(|it| Some((it.lost_for_s?, it.time_left_s)));
    match lost {
        Some((since, Some(left))) => format!("{name} for {since:.0} s, fails in {left:.0} s"),
        Some((since, None)) => format!("{name} for {since:.0} s"),
        None => name.to_owned(),
    }
}

fn session_card(page: &mut Html, sessions: &[SessionReport], rates: Rates<'_>) {
    let head =
        ["Export", "Device", "State", "Reads", "Writes", "Latency, 99 %", "In progress", "Errors"];
    let mut table = Table::new(head);
    let mut links = Table::new(LINKS);
    for session in sessions {
        let is_live = matches!(session.state, SessionState::Live(_));
        let about = [
            Cell::text(&session.record.export),
            Cell::text(format!("{}\n{}", session.device(), session.record.kind.name())),
            Cell::state(is_live, state(session)),
        ];
        let figures = session.figures().map(|it| request_cells(session, it, rates));
        let none = || [(); 5].map(|()| Cell::number(NONE));
        let [a, b, c] = about;
        let [d, e, f, g, h] = figures.unwrap_or_else(none);
        table.row([a, b, c, d, e, f, g, h]);
        for link in session.links() {
            links.row(session_link(session, link, rates));
        }
    }
    let mut card = Html::default();
    card.text("h2", "", "Sessions");
    card.html(&table.html());
    card.text("h3", "", "Links of sessions");
    card.html(&links.html());
    page.around("div", "card", &card);
}

fn request_cells(session: &SessionReport, figures: &Figures, rates: Rates<'_>) -> [Cell; 5] {
    let (now, before) = (&figures.requests, rates.requests(session));
    let before = before.map(|it| &it.succeeded);
    let high = |latency: &Latency| match latency.count {
        0 => NONE.to_owned(),
        _ if latency.p99_us < 10_000.0 => format!("{:.0} µs", latency.p99_us),
        _ => format!("{:.0} ms", latency.p99_us / 1000.0),
    };
    let latency = &figures.latency;
    let (reads, writes) = (high(&latency.reads.recent), high(&latency.writes.recent));
    let errors =
        if now.errors > 0 { Cell("n bad", now.errors.to_string()) } else { Cell::number("0") };
    let counts = &now.succeeded;
    [
        rate_cell(
            rates.of(counts.reads, before.map(|it| it.reads)),
            rates.of(counts.read_bytes, before.map(|it| it.read_bytes)),
        ),
        rate_cell(
            rates.of(counts.writes, before.map(|it| it.writes)),
            rates.of(counts.written_bytes, before.map(|it| it.written_bytes)),
        ),
        Cell::number(format!("{reads} to read\n{writes} to write")),
        Cell::number(figures.operations.to_string()),
        errors,
    ]
}

/// Requests and bytes by second.
fn rate_cell(requests: Option<f64>, moved: Option<f64>) -> Cell {
    match (requests, moved) {
        (Some(requests), Some(moved)) => {
            Cell::number(format!("{}/s\n{}/s", count(requests), bytes(moved as u64)))
        }
        _ => Cell::number(NONE),
    }
}

/// A number of things by second, with a digit behind the point where that says something.
fn count(number: f64) -> String {
    let is_whole = number >= 10.0 || number == 0.0;
    if is_whole { format!("{number:.0}") } else { format!("{number:.1}") }
}

/// The columns of links.
const LINKS: [&str; 7] = ["Link", "Of", "State", "Received", "Sent", "Sent again", "Round trip"];

fn session_link(session: &SessionReport, link: &SessionLink, rates: Rates<'_>) -> [Cell; 7] {
    let before = rates.session_link(session, link).map(|it| &*it.port);
    let again: u64 = link.channels.iter().map(|channel| channel.retransmitted).sum();
    let round_trip =
        if link.live && link.rtt_us > 0 { format!("{} µs", link.rtt_us) } else { NONE.to_owned() };
    let state = match (&link.problem, link.live) {
        (Some(problem), _) => Cell::state(false, problem),
        (None, true) => Cell::state(true, "up"),
        (None, false) => Cell::text("not connected"),
    };
    [
        Cell::text(&link.interface),
        Cell::text(&session.record.export),
        state,
        moved_cell(rates.of(link.port.rx_bytes, before.map(|it| it.rx_bytes))),
        moved_cell(rates.of(link.port.tx_bytes, before.map(|it| it.tx_bytes))),
        Cell::number(again.to_string()),
        Cell::number(round_trip),
    ]
}

fn moved_cell(moved: Option<f64>) -> Cell {
    Cell::number(moved.map_or_else(|| NONE.to_owned(), |it| format!("{}/s", bytes(it as u64))))
}

fn target_card(page: &mut Html, target: &TargetReport, rates: Rates<'_>) {
    let mut card = Html::default();
    card.text("h2", "", &format!("Target {}", target.name));
    if let Some(problem) = &target.problem {
        card.text("p", "", &format!("It {problem}."));
        return page.around("div", "card", &card);
    }
    let head = ["Export", "State", "Size", "Hosts", "Reads", "Writes", "Disk errors"];
    let mut exports = Table::new(head);
    target.exports.iter().for_each(|it| exports.row(export_row(target, it, rates)));
    match target.exports[..] {
        [] => card.text("p", "soft", "It has no export."),
        _ => card.html(&exports.html()),
    }
    let head = ["Link", "State", "Channels", "Requests", "Received", "Sent", "Sent again"];
    let mut links = Table::new(head);
    target.links.iter().for_each(|it| links.row(target_link(target, it, rates)));
    target.fcoe.iter().for_each(|it| links.row(port_row(it)));
    card.text("h3", "", "Links");
    card.html(&links.html());
    page.around("div", "card", &card);
}

fn export_row(target: &TargetReport, export: &ExportReport, rates: Rates<'_>) -> [Cell; 7] {
    let hosts = export.sessions.iter().map(|session| {
        let what = if session.writer { "writes" } else { "reads" };
        format!("{} ({what})", session.host_name)
    });
    let mut hosts: Vec<_> = hosts.collect();
    hosts.sort();
    hosts.dedup();
    let state = match &export.problem {
        Some(problem) => Cell::state(false, problem),
        None => Cell::state(true, "up"),
    };
    let (now, before): (&UseCounts, _) = (&export.requests, rates.uses(target, export));
    let errors = if export.errors > 0 {
        Cell("n bad", export.errors.to_string())
    } else {
        Cell::number("0")
    };
    [
        Cell::text(format!("{}\n{}", export.export, export.path)),
        state,
        Cell::number(bytes(export.size)),
        Cell::text(if hosts.is_empty() { NONE.to_owned() } else { hosts.join("\n") }),
        rate_cell(
            rates.of(now.reads, before.map(|it| it.reads)),
            rates.of(now.read_bytes, before.map(|it| it.read_bytes)),
        ),
        rate_cell(
            rates.of(now.writes, before.map(|it| it.writes)),
            rates.of(now.written_bytes, before.map(|it| it.written_bytes)),
        ),
        errors,
    ]
}

fn target_link(target: &TargetReport, link: &TargetLink, rates: Rates<'_>) -> [Cell; 7] {
    let before = rates.target_link(target, link);
    let state = match &link.problem {
        Some(problem) => Cell::state(false, problem),
        None => Cell::state(true, "up"),
    };
    let requests = rates.of(link.requests, before.map(|it| it.requests));
    [
        Cell::text(&link.interface),
        state,
        Cell::number(link.channels.len().to_string()),
        Cell::number(requests.map_or_else(|| NONE.to_owned(), |it| format!("{}/s", count(it)))),
        moved_cell(rates.of(link.port.rx_bytes, before.map(|it| it.port.rx_bytes))),
        moved_cell(rates.of(link.port.tx_bytes, before.map(|it| it.port.tx_bytes))),
        Cell::number(link.channel.counters.retransmitted.to_string()),
    ]
}

/// The row of a port of FCoE, which has no rates.
fn port_row(port: &TargetPort) -> [Cell; 7] {
    let state = match &port.problem {
        Some(problem) => Cell::state(false, problem),
        None => Cell::state(true, "up"),
    };
    [
        Cell::text(format!("{} (FCoE)\n{}", port.interface, port.wwpn)),
        state,
        Cell::number(format!("{} initiators", port.initiators.len())),
        Cell::number(format!("{} in all", port.commands)),
        Cell::number(format!("{} in all", bytes(port.port.rx_bytes))),
        Cell::number(format!("{} in all", bytes(port.port.tx_bytes))),
        Cell::number(NONE),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::daemons::exporter::sample;

    #[test]
    fn a_page_shows_names_problems_and_rates_and_runs_nothing() {
        let before = sample::look();
        let mut now = sample::look();
        now.at = before.at + Duration::from_secs(2);
        let SessionState::Lost(figures) = &mut now.machine.sessions[0].state else { panic!() };
        figures.requests.succeeded.0.reads += 30;
        figures.requests.succeeded.0.read_bytes += 2 << 20;
        let page = write(&now, Some(&before));
        for part in [
            "store1/vm1",
            "/dev/ublkb0",
            "lost for 12 s, fails in 588 s",
            "15/s<br>1.0 MiB/s",
            "eth0",
            "Target store1",
            "hostA (writes)",
            "a&quot;b\\c<br>&lt;d&gt;",
            "Target silent",
            "2 sessions, 2 targets at ",
            "content=\"5\"",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(!page.contains("<script") && !page.contains("{{") && !page.contains("<d>"));
        assert!(write(&now, None).contains("content=\"2\""));
    }

    #[test]
    fn what_is_filled_in_is_not_looked_at_again() {
        let value = |name: &str| format!("<{name}{{{{b}}}}>");
        assert_eq!(fill("x{{a}}y", value), "x<a{{b}}>y");
    }
}
