//! JSON Schemas of the three mandates, equal to the types of AP2 v0.1. Additional members are allowed, as in AP2.

/// Types that carts and payments share. A total may not be negative in W3C's Payment Request, the base of AP2.
macro_rules! shared {
    () => {
        r##""text": {"type": ["string", "null"]},
    "flag": {"type": ["boolean", "null"]},
    "object": {"type": ["object", "null"]},
    "amount": {"type": "object", "required": ["currency", "value"], "properties": {
      "currency": {"type": "string", "minLength": 1}, "value": {"type": "number"}
    }},
    "item": {"type": "object", "required": ["label", "amount"], "properties": {
      "label": {"type": "string"}, "amount": {"$ref": "#/$defs/amount"},
      "pending": {"$ref": "#/$defs/flag"}, "refund_period": {"type": "integer"}
    }},
    "total": {"allOf": [
      {"$ref": "#/$defs/item"},
      {"properties": {"amount": {"properties": {"value": {"minimum": 0}}}}}
    ]},
    "shipping": {"type": ["object", "null"], "required": ["id", "label", "amount"], "properties": {
      "id": {"type": "string"}, "label": {"type": "string"},
      "amount": {"$ref": "#/$defs/amount"}, "selected": {"$ref": "#/$defs/flag"}
    }},
    "address": {"type": ["object", "null"], "properties": {
      "city": {"$ref": "#/$defs/text"}, "country": {"$ref": "#/$defs/text"},
      "dependent_locality": {"$ref": "#/$defs/text"}, "organization": {"$ref": "#/$defs/text"},
      "phone_number": {"$ref": "#/$defs/text"}, "postal_code": {"$ref": "#/$defs/text"},
      "recipient": {"$ref": "#/$defs/text"}, "region": {"$ref": "#/$defs/text"},
      "sorting_code": {"$ref": "#/$defs/text"},
      "address_line": {"type": ["array", "null"], "items": {"type": "string"}}
    }}"##
    };
}

/// JSON Schema of an `IntentMandate`.
pub const INTENT: &str = r#"{
  "type": "object",
  "required": ["natural_language_description", "intent_expiry"],
  "properties": {
    "user_cart_confirmation_required": {"type": "boolean"},
    "natural_language_description": {"type": "string"},
    "merchants": {"type": ["array", "null"], "items": {"type": "string"}},
    "skus": {"type": ["array", "null"], "items": {"type": "string"}},
    "requires_refundability": {"type": ["boolean", "null"]},
    "intent_expiry": {"type": "string"}
  }
}"#;

/// JSON Schema of a `CartMandate`.
pub const CART: &str = concat!(
    r##"{
  "type": "object",
  "required": ["contents"],
  "properties": {
    "merchant_authorization": {"$ref": "#/$defs/text"},
    "contents": {
      "type": "object",
      "required": ["id", "user_cart_confirmation_required", "payment_request", "cart_expiry", "merchant_name"],
      "properties": {
        "id": {"type": "string"},
        "user_cart_confirmation_required": {"type": "boolean"},
        "payment_request": {"$ref": "#/$defs/request"},
        "cart_expiry": {"type": "string"},
        "merchant_name": {"type": "string"}
      }
    }
  },
  "$defs": {
    "request": {"type": "object", "required": ["method_data", "details"], "properties": {
      "method_data": {"type": "array", "items": {"type": "object", "required": ["supported_methods"], "properties": {
        "supported_methods": {"type": "string"}, "data": {"$ref": "#/$defs/object"}
      }}},
      "details": {"type": "object", "required": ["id", "display_items", "total"], "properties": {
        "id": {"type": "string"},
        "display_items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "shipping_options": {"type": ["array", "null"], "items": {"type": "object", "$ref": "#/$defs/shipping"}},
        "modifiers": {"type": ["array", "null"], "items": {"$ref": "#/$defs/modifier"}},
        "total": {"$ref": "#/$defs/total"}
      }},
      "options": {"type": ["object", "null"], "properties": {
        "request_payer_name": {"$ref": "#/$defs/flag"}, "request_payer_email": {"$ref": "#/$defs/flag"},
        "request_payer_phone": {"$ref": "#/$defs/flag"}, "request_shipping": {"$ref": "#/$defs/flag"},
        "shipping_type": {"$ref": "#/$defs/text"}
      }},
      "shipping_address": {"$ref": "#/$defs/address"}
    }},
    "modifier": {"type": "object", "required": ["supported_methods"], "properties": {
      "supported_methods": {"type": "string"},
      "total": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/item"}]},
      "additional_display_items": {"type": ["array", "null"], "items": {"$ref": "#/$defs/item"}},
      "data": {"$ref": "#/$defs/object"}
    }},
    "##,
    shared!(),
    "\n  }\n}"
);

/// JSON Schema of a `PaymentMandate`.
pub const PAYMENT: &str = concat!(
    r##"{
  "type": "object",
  "required": ["payment_mandate_contents"],
  "properties": {
    "user_authorization": {"$ref": "#/$defs/text"},
    "payment_mandate_contents": {
      "type": "object",
      "required": ["payment_mandate_id", "payment_details_id", "payment_details_total", "payment_response", "merchant_agent"],
      "properties": {
        "payment_mandate_id": {"type": "string", "minLength": 1},
        "payment_details_id": {"type": "string"},
        "payment_details_total": {"$ref": "#/$defs/total"},
        "payment_response": {"$ref": "#/$defs/response"},
        "merchant_agent": {"type": "string"},
        "timestamp": {"type": "string"}
      }
    }
  },
  "$defs": {
    "response": {"type": "object", "required": ["request_id", "method_name"], "properties": {
      "request_id": {"type": "string"}, "method_name": {"type": "string"},
      "details": {"$ref": "#/$defs/object"},
      "shipping_address": {"$ref": "#/$defs/address"}, "shipping_option": {"$ref": "#/$defs/shipping"},
      "payer_name": {"$ref": "#/$defs/text"}, "payer_email": {"$ref": "#/$defs/text"},
      "payer_phone": {"$ref": "#/$defs/text"}
    }},
    "##,
    shared!(),
    "\n  }\n}"
);
