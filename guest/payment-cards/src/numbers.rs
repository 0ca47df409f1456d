//! Finds payment card numbers in a text: digits from the range of a card network, with a check digit (ISO/IEC 7812).

use std::iter;

/// The maximum number of digits of a card number.
const LONGEST: usize = 19;

/// True if the text contains a card number. The digits of a card number are adjacent or in groups, with one space or
/// hyphen between two groups. Digits next to a letter belong to a word, such as a file name.
pub fn has_card_number(text: &str) -> bool {
    let mut rest = text.as_bytes();
    let mut run = Run::default();
    while let Some(between) = rest.iter().position(u8::is_ascii_digit) {
        let (before, digits) = rest.split_at(between);
        let (group, after) = digits.split_at(digits.iter().take_while(|byte| byte.is_ascii_digit()).count());
        let is_in_word = [before.last(), after.first()].into_iter().flatten().any(|byte| is_letter(*byte));
        if is_in_word || !matches!(before, b" " | b"-") {
            if run.has_card_number() {
                return true;
            }
            run = Run::default();
        }
        if !is_in_word {
            run.push(group);
        }
        rest = after;
    }
    run.has_card_number()
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

/// Groups of digits that together may be one number.
#[derive(Default)]
struct Run {
    digits: Vec<u8>,
    /// For each group, the number of digits up to its end.
    ends: Vec<usize>,
}

impl Run {
    fn push(&mut self, group: &[u8]) {
        self.digits.extend(group);
        self.ends.push(self.digits.len());
    }

    /// True if some consecutive groups are a card number. Other numbers may be next to the card number, such as the
    /// year and the security code. Each group is combined with at most 18 other groups.
    fn has_card_number(&self) -> bool {
        let starts = iter::once(0).chain(self.ends.iter().copied());
        starts.enumerate().any(|(group, start)| {
            let ends = self.ends.iter().skip(group).take_while(|end| **end <= start + LONGEST);
            ends.filter_map(|end| self.digits.get(start..*end)).any(is_card_number)
        })
    }
}

fn is_card_number(digits: &[u8]) -> bool {
    // The network is checked first: this check costs less, and few numbers pass it.
    is_of_network(digits) && has_check_digit(digits)
}

/// True if a card network issues numbers with this prefix and this length.
fn is_of_network(digits: &[u8]) -> bool {
    let beginning = digits.iter().take(4).fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'));
    matches!(
        (beginning, digits.len()),
        // Visa.
        (4000..=4999, 13 | 16 | 19)
            // Mastercard.
            | (2221..=2720 | 5100..=5599, 16)
            // American Express.
            | (3400..=3499 | 3700..=3799, 15)
            // Diners Club.
            | (3000..=3059 | 3600..=3699 | 3800..=3999, 14)
            // JCB, Discover, UnionPay.
            | (3528..=3589 | 6011 | 6200..=6299 | 6440..=6599, 16..=LONGEST)
            // Maestro.
            | (5018 | 5020 | 5038 | 5893 | 6304 | 6759 | 6761..=6763, 13..=LONGEST)
    )
}

/// The Luhn check (ISO/IEC 7812-1, annex B).
fn has_check_digit(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            let digit = u32::from(digit - b'0');
            // Every second digit from the end is doubled. The digits of the result are added.
            if place % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 }
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::has_card_number;

    #[test]
    fn numbers_of_each_network_are_found() {
        // Test numbers that the networks and payment services publish.
        for number in [
            "4111111111111111",
            "4222222222222",
            "4000000000000000006",
            "5555555555554444",
            "2223003122003222",
            "378282246310005",
            "30569309025904",
            "6011111111111117",
            "3566002020360505",
            "6200000000000005",
            "6759649826438453",
        ] {
            assert!(has_card_number(number), "{number}");
        }
    }

    #[test]
    fn a_number_is_found_as_people_write_it_and_beside_other_digits() {
        for text in [
            "4111 1111 1111 1111",
            "My card is 4111-1111-1111-1111, please.",
            "4111 1111 1111 1111 123",
            "12 4111 1111 1111 1111",
            "4111111111111111 12/28 123",
            "order 4000 4111 1111 1111 1111",
            "3782 822463 10005",
            "(4111111111111111)",
            "Karte:\n4111111111111111\n",
            "№4111111111111111",
        ] {
            assert!(has_card_number(text), "{text}");
        }
    }

    #[test]
    fn other_numbers_are_none() {
        for text in [
            "",
            "4111 1111 1111 1112",
            "4111  1111 1111 1111",
            "4111, 1111, 1111, 1111",
            "41111111111111111",
            "1764115200000",
            "20261126 065004",
            "+49 30 123456 7890123",
            "DE89 3704 0044 0532 0130 00",
            "IMG_4111111111111111.jpg",
            "f4111111111111111a",
            "9780306406157",
            "0000000000000000",
        ] {
            assert!(!has_card_number(text), "{text}");
        }
    }

    #[test]
    fn many_groups_are_looked_at_in_one_pass() {
        // Each begins as a card number does. With all pairs of groups this would take minutes.
        assert!(!has_card_number(&"4 ".repeat(50_000)));
        assert!(has_card_number(&format!("{}5555 5555 5555 4444", "4 ".repeat(50_000))));
    }
}
