//! The stages as a bar, like that of MSST 2015 ("4kB Read Requests At Low Concurrency"): an SVG
//! of a few rectangles and lines of text.

use std::fmt::Write;

use tyche_native::Stage;

use super::{Breakdown, Row};

/// Pixels.
const WIDTH: f64 = 720.0;
const MARGIN: f64 = 24.0;
const BAR_Y: f64 = 48.0;
const BAR_HEIGHT: f64 = 56.0;
const LINE: f64 = 22.0;

/// The whole file. `title` is plain text.
pub(crate) fn svg(title: &str, breakdown: &Breakdown) -> String {
    let legend_y = BAR_Y + BAR_HEIGHT + 28.0;
    let height = legend_y + LINE * Stage::ALL.len() as f64 + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"30\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    let mut x = MARGIN;
    for (line, row) in breakdown.rows().enumerate() {
        let width = row.share * (WIDTH - 2.0 * MARGIN);
        rectangle(&mut svg, (x, BAR_Y), (width, BAR_HEIGHT), row.stage);
        x += width;
        legend(&mut svg, legend_y + LINE * line as f64, &row);
    }
    svg + "</svg>\n"
}

fn rectangle(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), stage: Stage) {
    let color = color(stage);
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{color}\">\
         <title>{}</title></rect>",
        stage.name()
    );
}

fn legend(svg: &mut String, y: f64, row: &Row) {
    rectangle(svg, (MARGIN, y), (14.0, 14.0), row.stage);
    let mut text = |x: f64, anchor: &str, text: &str| {
        let y = y + 12.0;
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
    };
    text(MARGIN + 24.0, "start", row.stage.name());
    text(MARGIN + 260.0, "end", &format!("{:.2} us", row.mean / 1e3));
    text(MARGIN + 340.0, "end", &format!("{:.1} %", row.share * 100.0));
}

/// Colours: the host is blue, the target orange, the store green, wake-ups red and the wire grey.
/// Colour-blind readers can tell them apart.
fn color(stage: Stage) -> &'static str {
    match stage {
        Stage::Submit => "#0b3c5d",
        Stage::Transmit => "#0072b2",
        Stage::Receive => "#56b4e9",
        Stage::Complete => "#a6d8f5",
        Stage::TargetReceive => "#e69f00",
        Stage::TargetTransmit => "#f5c969",
        Stage::Store => "#009e73",
        Stage::Wake => "#d55e00",
        Stage::TargetWake => "#a23e00",
        Stage::WireThere => "#999999",
        Stage::WireBack => "#bbbbbb",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use tyche_native::StageTimes;

    use super::*;

    /// The values of an attribute of the bar's rectangles.
    fn of_bar(svg: &str, name: &str) -> Vec<f64> {
        let bar = format!("y=\"{BAR_Y:.2}\"");
        let lines = svg.lines().filter(|line| line.contains(&bar));
        let value = |line: &str| {
            let rest = line.split(&format!(" {name}=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        lines.map(value).collect()
    }

    #[test]
    fn the_bar_is_as_wide_as_the_picture_and_without_gaps() {
        let mut breakdown = Breakdown::default();
        breakdown.add(&StageTimes::from_nanoseconds([1, 20, 300, 4, 50, 600, 7, 80, 900, 10, 28]));
        let svg = svg("a < b & c", &breakdown);
        let (xs, widths) = (of_bar(&svg, "x"), of_bar(&svg, "width"));
        assert_eq!(xs.len(), Stage::ALL.len());
        let mut x = MARGIN;
        for (at, width) in xs.iter().zip(&widths) {
            assert!((at - x).abs() < 0.1, "{xs:?} {widths:?}");
            x += width;
        }
        assert!((x - (WIDTH - MARGIN)).abs() < 0.1, "{x}");
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains(">0.60 us<"), "{svg}");
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn nothing_is_an_empty_bar() {
        let svg = svg("nothing", &Breakdown::default());
        assert!(of_bar(&svg, "width").iter().all(|&width| width == 0.0), "{svg}");
        assert!(!svg.contains("NaN"));
    }
}
