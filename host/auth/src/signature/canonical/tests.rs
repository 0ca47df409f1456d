use super::{CanonicalError, CanonicalForm, canonical_bytes, read_card};

fn canonical(json: &str) -> Result<String, CanonicalError> {
    let bytes = canonical_bytes(read_card(json)?, CanonicalForm::Specification)?;
    Ok(String::from_utf8(bytes).unwrap())
}

fn without_empty_values(json: &str) -> String {
    let bytes = canonical_bytes(read_card(json).unwrap(), CanonicalForm::WithoutEmptyValues).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_example_of_rfc_8785_section_3_2_2_comes_out_as_printed_there() {
    let input = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    assert_eq!(canonical(input).unwrap(), expected);
}

#[test]
fn keys_are_sorted_by_utf_16_as_in_rfc_8785_section_3_2_3() {
    let input = r#"{
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let expected = concat!(
        "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",",
        "\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",",
        "\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
    );
    assert_eq!(canonical(input).unwrap(), expected);
}

#[test]
fn numbers_come_out_as_in_rfc_8785_appendix_b() {
    let samples = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in samples {
        let input = format!(r#"{{"n":{:e}}}"#, f64::from_bits(bits)).replace(":0e0", ":0.0").replace(":-0e0", ":-0.0");
        assert_eq!(canonical(&input).unwrap(), format!(r#"{{"n":{expected}}}"#), "{bits:x}");
    }
}

#[test]
fn decimals_are_the_double_nearest_to_them() {
    for number in ["31.245270191439438", "122.41629403378658", "2.2250738585072014e-308", "0.30000000000000004"] {
        let json = format!(r#"{{"n":{number}}}"#);
        assert_eq!(canonical(&json).unwrap(), json);
    }
}

#[test]
fn the_example_of_the_specification_comes_out_as_printed_there() {
    let input = r#"{
        "name": "Example Agent", "description": "",
        "capabilities": {"streaming": false, "pushNotifications": false, "extensions": []},
        "skills": []
    }"#;
    let expected = r#"{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent","skills":[]}"#;
    assert_eq!(canonical(input).unwrap(), expected);
}

#[test]
fn defaults_of_nested_messages_are_left_out_and_parameters_are_not_touched() {
    let input = r#"{
        "provider": null, "futureField": "",
        "capabilities": {"extensions": [
            {"uri": "urn:x", "description": "", "required": false, "params": {"empty": "", "none": null, "required": false}}
        ]},
        "securitySchemes": {"oauth": {"oauth2SecurityScheme": {"description": "", "flows": {
            "authorizationCode": {"tokenUrl": "", "refreshUrl": "", "scopes": {}, "pkceRequired": false}
        }}}},
        "securityRequirements": [{"schemes": {"oauth": {"list": []}}}, {"schemes": {}}]
    }"#;
    let expected = concat!(
        r#"{"capabilities":{"extensions":[{"params":{"empty":"","none":null,"required":false},"uri":"urn:x"}]},"#,
        r#""futureField":"","securityRequirements":[{"schemes":{"oauth":{}}},{}],"#,
        r#""securitySchemes":{"oauth":{"oauth2SecurityScheme":{"flows":{"authorizationCode":{"scopes":{},"tokenUrl":""}}}}}}"#
    );
    assert_eq!(canonical(input).unwrap(), expected);
}

#[test]
fn the_form_of_the_sdks_leaves_out_all_that_is_empty() {
    let input = r#"{"name":"a","description":"","skills":[{"tags":[]}],"params":{"zero":0,"no":false,"none":null}}"#;
    assert_eq!(without_empty_values(input), r#"{"name":"a","params":{"no":false,"zero":0}}"#);
    assert_eq!(without_empty_values(r#"{"description":""}"#), "{}");
}

#[test]
fn integers_up_to_2_53_have_a_canonical_form_and_larger_ones_have_none() {
    for integer in ["9007199254740991", "-9007199254740991", "0", "-1"] {
        assert_eq!(canonical(&format!(r#"{{"n":{integer}}}"#)).unwrap(), format!(r#"{{"n":{integer}}}"#));
    }
    for integer in ["9007199254740992", "9007199254740993", "-9007199254740992", "123456789012345678901234567890"] {
        let refused = canonical(&format!(r#"{{"n":[{integer}]}}"#));
        assert!(matches!(refused, Err(CanonicalError::Integer(text)) if text == integer), "{integer}");
    }
}

#[test]
fn what_two_readers_could_see_differently_has_no_canonical_form() {
    for input in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":1,"b":2}}"#,
        r#"{"a":[{"b":1,"\u0062":2}]}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"n":1e400}"#,
        r#"{"a":1} {}"#,
        "[]",
        "",
    ] {
        assert!(matches!(canonical(input), Err(CanonicalError::NotJson(_))), "{input}");
    }
}

#[test]
fn cards_are_bounded_in_size_and_depth() {
    let large = format!(r#"{{"a":"{}"}}"#, "a".repeat(600 * 1024));
    assert!(matches!(canonical(&large), Err(CanonicalError::TooLarge)));
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert!(matches!(canonical(&deep), Err(CanonicalError::NotJson(_))));
}
