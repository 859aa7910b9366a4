//! The screen: sessions, links and queues of the selected one, targets, and a line of keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Clear, Paragraph, Row, Table, TableState, Wrap};

use crate::shared::report::{SessionRates, StateName, TopReport};

use super::columns::{Column, LINKS, SERVED, SESSIONS, ServedRow, counted, served};
use super::figures::{count, megabytes};
use super::view::{Focus, View};

/// The keys, in the last line.
const KEYS: &str = "q quit  ↑↓ select  ←→ sort  r reverse  e expand  tab next  p pause  ? help";
/// The same for narrow terminals.
const FEW_KEYS: &str = "q quit  ? help";

const HELP: &str = "\
 q, Esc, Ctrl-C   quit
 ↑ ↓, j k         select a row
 ← →, < >         sort the sessions by another column
 r                reverse the order
 e, Enter         show or hide links and queues of the session,
                  or the hosts of exports
 Tab              between sessions and targets
 p                pause
 Space            look at the counters now

 R/S W/S RMB/S WMB/S   requests, and MB (10^6 bytes), per second
 AVG P99               latency of reads and writes in the interval
 FLY                   requests in flight
 RETX LOST             frames sent again, lost in this machine, per s
 LEFT                  time until requests of a lost session fail";

/// The parts of the title that are no figures.
pub(super) struct Title<'a> {
    /// Name of this machine.
    pub(super) machine: &'a str,
    /// Seconds between looks.
    pub(super) interval: f64,
    /// Whether a daemon has not answered yet.
    pub(super) is_waiting: bool,
}

/// Rows that each part gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heights {
    sessions: u16,
    links: u16,
    queues: u16,
    targets: u16,
}

impl Heights {
    /// Divides `room` rows: links get what they need up to a third, and sessions of the rest what
    /// targets leave, but at least half.
    fn divide(room: u16, wanted: Self) -> Self {
        let links = wanted.links.min(room / 3);
        let queues = if links > 0 { wanted.queues.min(2) } else { 0 };
        let rest = room - links - queues;
        let sessions = wanted.sessions.min(rest.saturating_sub(wanted.targets).max(rest / 2));
        let targets = wanted.targets.min(rest - sessions);
        Self { sessions, links, queues, targets }
    }
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, report: &TopReport, view: &View, title: &Title<'_>) {
    let area = frame.area();
    let [head, body, note, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head_line(report, view, title)), head);
    let index = view.index(&report.sessions);
    let selected = index.map(|index| &report.sessions[index]);
    let detailed = selected.filter(|_| view.shows_links);
    let rows = served(&report.targets, view.shows_hosts);
    let table = |rows: usize| if rows == 0 { 0 } else { rows as u16 + 2 };
    let heights = Heights::divide(
        body.height,
        Heights {
            sessions: report.sessions.len() as u16 + 1,
            links: detailed.map_or(0, |it| table(it.links.len())),
            queues: detailed.map_or(0, |it| u16::from(!it.queues.is_empty())),
            targets: table(rows.len()),
        },
    );
    let lengths = [heights.sessions, heights.links, heights.queues, heights.targets];
    let [sessions, links, queues, targets] =
        Layout::vertical(lengths.map(Constraint::Length)).areas(body);
    draw_sessions(frame, sessions, report, view);
    if let Some(session) = detailed {
        let lines = session.links.iter().map(|it| (it, problem_style(it.problem.is_some())));
        draw_table(frame, below_gap(links), LINKS, lines, None);
        frame.render_widget(Paragraph::new(queue_line(session)), queues);
    }
    let selected_row = (view.focus == Focus::Targets).then_some(view.row);
    let lines = rows.iter().map(|it| (it, problem_style(it.problem.is_some())));
    draw_table(frame, below_gap(targets), SERVED, lines, selected_row);
    frame.render_widget(Paragraph::new(problem(selected, &rows, view)).style(alarm()), note);
    let known = if KEYS.chars().count() <= usize::from(area.width) { KEYS } else { FEW_KEYS };
    frame.render_widget(Paragraph::new(known).style(dim()), keys);
    if view.shows_help {
        draw_help(frame, area);
    }
}

/// A part without its first line, which stays empty.
fn below_gap(area: Rect) -> Rect {
    let gap = area.height.min(1);
    Rect { y: area.y + gap, height: area.height - gap, ..area }
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn alarm() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

fn problem_style(is_faulty: bool) -> Style {
    if is_faulty { Style::new().fg(Color::Yellow) } else { Style::new() }
}

fn head_line(report: &TopReport, view: &View, title: &Title<'_>) -> Line<'static> {
    let sessions = &report.sessions;
    let bad = sessions.iter().filter(|it| it.state != StateName::Live).count();
    let rates = || sessions.iter().filter_map(|it| it.requests.as_ref());
    let requests: f64 = rates().map(|it| it.reads.per_s + it.writes.per_s).sum();
    let bytes: f64 = rates().map(|it| it.bytes_per_s()).sum();
    let begin = format!("tyche top  {}  {}", title.machine, counted(sessions.len(), "session"));
    let mut end = format!(
        ", {}  {} req/s  {} MB/s  every {} s",
        counted(report.targets.len(), "target"),
        count(requests),
        megabytes(bytes),
        title.interval
    );
    if view.is_paused {
        end += "  PAUSED";
    } else if title.is_waiting {
        end += "  …";
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let alarm = Span::styled(format!(" ({bad} not live)"), alarm());
    let alarm = if bad > 0 { alarm } else { Span::default() };
    Line::from(vec![Span::styled(begin, bold), alarm, Span::styled(end, bold)])
}

fn draw_sessions(frame: &mut Frame<'_>, area: Rect, report: &TopReport, view: &View) {
    if report.sessions.is_empty() {
        let text = "no session: `tyche connect EXPORT` makes one";
        frame.render_widget(Paragraph::new(text).style(dim()), area);
        return;
    }
    let mut table = Titled::new(SESSIONS, area.width);
    table.sorted = Some((view.sort, view.is_reversed));
    let lines = report.sessions.iter().map(|it| (it, session_style(it)));
    let selected = view.index(&report.sessions).filter(|_| view.focus == Focus::Sessions);
    table.draw(frame, area, lines, selected);
}

fn session_style(session: &SessionRates) -> Style {
    match session.state {
        StateName::Live if session.links.iter().any(|it| it.problem.is_some()) => {
            problem_style(true)
        }
        StateName::Live | StateName::Ending => Style::new(),
        _ => Style::new().fg(Color::Red),
    }
}

fn draw_table<'a, T: 'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &'static [Column<T>],
    rows: impl Iterator<Item = (&'a T, Style)>,
    selected: Option<usize>,
) {
    if area.height > 0 {
        Titled::new(columns, area.width).draw(frame, area, rows, selected);
    }
}

/// A table with the columns for which there is room.
struct Titled<T: 'static> {
    columns: Vec<(usize, &'static Column<T>)>,
    /// Width of the first column.
    first: u16,
    /// The column that rows are sorted by, and whether in the other direction.
    sorted: Option<(usize, bool)>,
}

impl<T> Titled<T> {
    fn new(columns: &'static [Column<T>], width: u16) -> Self {
        let columns: Vec<_> =
            columns.iter().enumerate().filter(|(_, column)| column.from <= width).collect();
        let others: u16 = columns.iter().skip(1).map(|(_, column)| column.width + 1).sum();
        let first = columns.first().map_or(0, |(_, column)| column.width);
        // Names need no more than that.
        let first = width.saturating_sub(others).clamp(first, 48);
        Self { columns, first, sorted: None }
    }

    fn draw<'a>(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        rows: impl Iterator<Item = (&'a T, Style)>,
        selected: Option<usize>,
    ) where
        T: 'a,
    {
        let titles = self.columns.iter().enumerate().map(|(place, (index, column))| {
            let sorted = self.sorted.filter(|sorted| sorted.0 == *index);
            let style = match sorted {
                Some(_) => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
                None => dim(),
            };
            self.cell(place, column.title, column.is_number()).style(style)
        });
        let head = Row::new(titles);
        let lines = rows.map(|(row, style)| {
            let cells = self.columns.iter().enumerate();
            let cells = cells.map(|(place, (_, column))| {
                self.cell(place, &column.text(row), column.is_number())
            });
            Row::new(cells).style(style)
        });
        let widths = self.columns.iter().enumerate().map(|(place, _)| self.width(place));
        let table = Table::new(lines, widths.map(Constraint::Length)).header(head);
        let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected(selected);
        frame.render_stateful_widget(table.column_spacing(1), area, &mut state);
    }

    fn width(&self, place: usize) -> u16 {
        if place == 0 { self.first } else { self.columns[place].1.width }
    }

    fn cell(&self, place: usize, text: &str, is_number: bool) -> Cell<'static> {
        let width = usize::from(self.width(place));
        let text = shortened(text, width);
        Cell::new(if is_number { format!("{text:>width$}") } else { text })
    }
}

/// A text that is cut at its end to so many characters, which shows.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn queue_line(session: &SessionRates) -> String {
    let rates: Vec<_> = session.queues.iter().map(|rate| count(*rate)).collect();
    format!("QUEUES  {} requests/s", rates.join("  "))
}

/// The problem of what is selected.
fn problem(session: Option<&SessionRates>, rows: &[ServedRow], view: &View) -> String {
    let of_session = || {
        let session = session?;
        let faulty = session.links.iter();
        let mut faulty =
            faulty.filter_map(|it| Some(format!("{}: {}", it.link, it.problem.as_ref()?)));
        session.problem.clone().or_else(|| faulty.next())
    };
    let said = match view.focus {
        Focus::Sessions => of_session(),
        Focus::Targets => rows.get(view.row).and_then(|row| row.problem.clone()),
    };
    said.unwrap_or_default()
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = HELP.lines().count() as u16;
    let width = HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 1;
    let (width, height) = (width.min(area.width), lines.min(area.height));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let style = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }).style(style), place);
}

#[cfg(test)]
mod tests;
