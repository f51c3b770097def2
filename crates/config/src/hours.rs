//! Quiet hours: times of the week, in local time.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use serde::{Serialize, Serializer};

use crate::origins::Listed;

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const DAY: u16 = 24 * 60;

/// A time of the day, on some days of the week. Past midnight it goes on into the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    /// On which days it starts, from Monday.
    days: [bool; 7],
    /// The minute of the day that is the first.
    start: u16,
    /// The minute of the day, or of the next one, that is the first after it.
    end: u16,
}

impl QuietHours {
    /// Whether they hold at this local time.
    pub fn hold_at(&self, local: DateTime) -> bool {
        let minute = u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        let today = usize::from(local.weekday().to_monday_zero_offset().unsigned_abs());
        self.hold_on(today, minute) || self.hold_on((today + 6) % 7, minute + DAY)
    }

    /// Whether they hold at a minute that is counted from the start of a day, for what starts on that day.
    fn hold_on(&self, day: usize, minute: u16) -> bool {
        let end = if self.end > self.start { self.end } else { self.end + DAY };
        self.days[day] && (self.start..end).contains(&minute)
    }
}

/// Whether these leave no minute of the week.
pub(crate) fn cover_the_week(hours: &[Listed<QuietHours>]) -> bool {
    let hold = |day: usize, minute| {
        let before = (day + 6) % 7;
        hours.iter().any(|hours| hours.hold_on(day, minute) || hours.hold_on(before, minute + DAY))
    };
    (0..7).all(|day| (0..DAY).all(|minute| hold(day, minute)))
}

impl FromStr for QuietHours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (days, times) = match words[..] {
            [times] => ([true; 7], times),
            [days, times] => (self::days(days)?, times),
            _ => {
                return Err(
                    "write a time such as 22:00-06:00, or days before it as in Mon-Fri 22:00-06:00".into()
                );
            }
        };
        let both = times.split_once('-').and_then(|(start, end)| minute(start).zip(minute(end)));
        let Some((start, end)) = both.filter(|(start, _)| *start < DAY) else {
            return Err(format!("`{times}` is no time from 00:00 to 24:00 such as 22:00-06:00"));
        };
        if start == end {
            return Err(format!("`{times}` ends when it starts: write 00:00-24:00 for the whole day"));
        }
        Ok(Self { days, start, end })
    }
}

/// The minute of the day.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && (1..=2).contains(&text.len());
    let number = |text: &str| text.parse::<u16>().ok().filter(|_| digits(text));
    let (hour, minute) = (number(hour)?, number(minute).filter(|minute| *minute < 60)?);
    Some(hour * 60 + minute).filter(|time| *time <= DAY)
}

fn days(text: &str) -> Result<[bool; 7], String> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Some(first), Some(last)) = (day(first), day(last)) else {
            return Err(format!("`{part}` is no day of the week: write Mon, Mon-Fri or Sat,Sun"));
        };
        let length = (last + 7 - first) % 7;
        (first..=first + length).for_each(|day| days[day % 7] = true);
    }
    Ok(days)
}

/// From Monday, 0; by the first three letters or the whole name.
fn day(text: &str) -> Option<usize> {
    DAYS.iter().position(|day| day.eq_ignore_ascii_case(text) || day[..3].eq_ignore_ascii_case(text))
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != [true; 7] {
            let on: Vec<usize> = (0..DAYS.len()).filter(|day| self.days[*day]).collect();
            let name = |day: usize| &DAYS[day][..3];
            let days: Vec<String> = on
                .chunk_by(|day, next| day + 1 == *next)
                .map(|days| match days {
                    [first, _, .., last] => format!("{}-{}", name(*first), name(*last)),
                    days => days.iter().map(|day| name(*day)).collect::<Vec<_>>().join(","),
                })
                .collect();
            write!(f, "{} ", days.join(","))?;
        }
        let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{}-{}", time(self.start), time(self.end))
    }
}

impl Serialize for QuietHours {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;
    use crate::problem::Location;

    fn hours(text: &str) -> QuietHours {
        text.parse().unwrap()
    }

    /// A Monday is the 23rd.
    fn at(day: i8, hour: i8, minute: i8) -> DateTime {
        date(2026, 11, day).at(hour, minute, 59, 999)
    }

    #[test]
    fn past_midnight_they_belong_to_the_day_on_which_they_start() {
        let nights = hours("Mon-Fri 22:00-06:00");
        for (day, hour, minute, hold) in [
            (23, 21, 59, false),
            (23, 22, 0, true),
            (24, 5, 59, true),
            (24, 6, 0, false),
            (27, 23, 0, true),
            (28, 5, 59, true),
            (28, 22, 0, false),
            (29, 5, 0, false),
            (23, 5, 0, false),
        ] {
            assert_eq!(nights.hold_at(at(day, hour, minute)), hold, "{day} {hour}:{minute}");
        }
    }

    #[test]
    fn every_form_is_understood_and_written_as_one() {
        for (text, written) in [
            ("22:00-06:00", "22:00-06:00"),
            ("9:05-24:00", "09:05-24:00"),
            ("Mon-Sun 0:00-24:00", "00:00-24:00"),
            ("sat,SUNDAY 00:00-24:00", "Sat,Sun 00:00-24:00"),
            ("Fri-Mon  08:00-09:30", "Mon,Fri-Sun 08:00-09:30"),
            ("Mon,Wed-Thu,Wed 23:00-00:00", "Mon,Wed,Thu 23:00-00:00"),
        ] {
            assert_eq!(hours(text).to_string(), written);
            assert_eq!(hours(written), hours(text));
        }
        assert!(
            hours("Sun 00:00-24:00").hold_at(at(29, 23, 59))
                && !hours("Sun 00:00-24:00").hold_at(at(23, 0, 0))
        );
        assert!(
            hours("Sun 23:00-00:00").hold_at(at(29, 23, 59))
                && !hours("Sun 23:00-00:00").hold_at(at(23, 0, 0))
        );
    }

    #[test]
    fn anything_else_says_what_to_write() {
        let wrong = [
            "",
            "22-6",
            "22:00",
            "25:00-06:00",
            "24:00-06:00",
            "22:60-23:00",
            "+1:00-02:00",
            "Mon",
            "Mo 1:00-2:00",
            "Mon- 1:00-2:00",
            "08:00-08:00",
            "Mon Tue 1:00-2:00",
            "22:00 - 06:00",
            "1:00-2:00 Mon",
        ];
        let errors = wrong.map(|text| format!("`{text}`: {}", text.parse::<QuietHours>().unwrap_err()));
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn the_whole_week_is_found_in_parts() {
        let at = Location { file: Path::new("x").into(), line: 1, column: 1 };
        let listed = |text: &&str| Listed { value: hours(text), at: at.clone() };
        let cover = |texts: &[&str]| cover_the_week(&texts.iter().map(listed).collect::<Vec<_>>());
        assert!(cover(&["00:00-24:00"]) && cover(&["22:00-06:00", "06:00-22:00"]));
        assert!(cover(&[
            "Mon-Fri 06:00-05:59",
            "Sat,Sun 00:00-24:00",
            "Mon-Fri 05:59-06:00",
            "Mon 00:00-06:00"
        ]));
        assert!(!cover(&["Mon-Fri 00:00-24:00", "Sat 00:00-24:00", "Sun 00:00-23:59"]) && !cover(&[]));
    }

    proptest! {
        #[test]
        fn any_text_is_hours_or_an_error(text in "[A-Za-z0-9:, -]{0,20}|.{0,10}") {
            if let Ok(hours) = text.parse::<QuietHours>() {
                prop_assert_eq!(hours.to_string().parse(), Ok(hours));
            }
        }

        #[test]
        fn they_hold_for_as_many_minutes_as_they_say(start in 0..DAY, length in 1..=DAY, day in 0_usize..7) {
            let end = (start + length) % DAY;
            let end = if end == 0 || (length == DAY && start == 0) { DAY } else { end };
            prop_assume!(start != end);
            let hours = QuietHours { days: std::array::from_fn(|d| d == day), start, end };
            let week = date(2026, 11, 23).at(0, 0, 0, 0);
            let minutes = i64::from(DAY) * 7;
            let held = (0..minutes).filter(|m| hours.hold_at(week + jiff::Span::new().minutes(*m))).count();
            prop_assert_eq!(held, usize::from(length));
        }
    }
}
