;; An extension without a toolchain, for what no toolchain produces. Tests replace the three lines that begin with `;; =>`
;; in the core module.
(component
  (core module $guest
    (memory (export "memory") 2)
    ;; The next free byte for what the host puts into the memory. Nothing is ever freed.
    (global $free (mut i32) (i32.const 0x10000))

    ;; describe's answer: result<extension-descriptor, string>
    (data (i32.const 0)
      "\00\00\00\00"                     ;; ok
      "\00\01\00\00\22\00\00\00"         ;; uri
      "\40\01\00\00\09\00\00\00"         ;; name
      "\40\01\00\00\00\00\00\00"         ;; version
      "\40\01\00\00\09\00\00\00"         ;; description
      "\00\00\00\00\00\00\00\00\00\00\00\00" ;; no schema
      "\00\00\00\00\00\00\00\00"         ;; no metadata keys
      "\00\00\00\00\00\00\00\00"         ;; no dependencies
      "\00\00\00\00\00\00\00\00"         ;; no grants
      "\00\00\00\00")                    ;; no events, no payload
    (data (i32.const 0x100) "https://annex.example/hand-made/v1")
    (data (i32.const 0x140) "hand-made")

    ;; validate's answer is at 0x200, result<option<string>, rejection>: all zero is no delta.
    (func $answer (param $ok i32) (param $some i32) (param $pointer i32) (param $length i32)
      (i32.store (i32.const 0x200) (local.get $ok))
      (i32.store (i32.const 0x204) (local.get $some))
      (i32.store (i32.const 0x208) (local.get $pointer))
      (i32.store (i32.const 0x20c) (local.get $length)))

    ;; => MODULE

    (func (export "realloc") (param i32 i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      ;; => REALLOC
      (local.set $at
        (i32.and
          (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
          (i32.sub (i32.const 0) (local.get $align))))
      (global.set $free (i32.add (local.get $at) (local.get $size)))
      (local.get $at))

    (func (export "describe") (result i32) (i32.const 0))

    ;; The parameters are operation, context-id, task-id, requested and metadata.
    (func (export "validate") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
      ;; => VALIDATE
      (i32.const 0x200)))

  (core instance $guest (instantiate $guest))
  (alias core export $guest "memory" (core memory $memory))
  (alias core export $guest "realloc" (core func $realloc))

  (type $event-kinds (flags "message" "status" "artifact"))
  (type $extension-descriptor (record
    (field "uri" string) (field "name" string) (field "version" string) (field "description" string)
    (field "parameter-schema" (option string)) (field "metadata-keys" (list string))
    (field "depends-on" (list string)) (field "grants" (list string)) (field "events" $event-kinds)
    (field "payload" bool)))
  (func $describe (result (result $extension-descriptor (error string)))
    (canon lift (core func $guest "describe") (memory $memory)))

  (type $location (enum "message" "request"))
  (type $metadata-entry (record (field "location" $location) (field "key" string) (field "value" string)))
  (type $request (record
    (field "operation" string) (field "context-id" (option string)) (field "task-id" (option string))
    (field "requested" (list string))))
  (type $violation (record (field "pointer" string) (field "message" string)))
  (type $extension-error (record (field "code" s32) (field "message" string) (field "data" (option string))))
  (type $rejection (variant (case "violations" (list $violation)) (case "error" $extension-error)))
  (func $validate (param "request" $request) (param "metadata" (list $metadata-entry))
      (result (result (option string) (error $rejection)))
    (canon lift (core func $guest "validate") (memory $memory) (realloc $realloc)))

  ;; An exported function names its types, so each interface is the instance of a component that names them.
  (component $descriptor-interface
    (type $event-kinds' (flags "message" "status" "artifact"))
    (import "event-kinds" (type $event-kinds (eq $event-kinds')))
    (type $extension-descriptor' (record
      (field "uri" string) (field "name" string) (field "version" string) (field "description" string)
      (field "parameter-schema" (option string)) (field "metadata-keys" (list string))
      (field "depends-on" (list string)) (field "grants" (list string)) (field "events" $event-kinds)
      (field "payload" bool)))
    (import "extension-descriptor" (type $extension-descriptor (eq $extension-descriptor')))
    (import "describe" (func $describe (result (result $extension-descriptor (error string)))))
    (export $out-event-kinds "event-kinds" (type $event-kinds))
    (type $out-descriptor' (record
      (field "uri" string) (field "name" string) (field "version" string) (field "description" string)
      (field "parameter-schema" (option string)) (field "metadata-keys" (list string))
      (field "depends-on" (list string)) (field "grants" (list string)) (field "events" $out-event-kinds)
      (field "payload" bool)))
    (export $out-descriptor "extension-descriptor" (type $extension-descriptor) (type (eq $out-descriptor')))
    (export "describe" (func $describe) (func (result (result $out-descriptor (error string))))))
  (instance $descriptor (instantiate $descriptor-interface
    (with "event-kinds" (type $event-kinds))
    (with "extension-descriptor" (type $extension-descriptor))
    (with "describe" (func $describe))))
  (export "annex:extension/descriptor@0.1.0" (instance $descriptor))

  (component $state-interface
    (type $location' (enum "message" "request"))
    (import "location" (type $location (eq $location')))
    (type $metadata-entry' (record (field "location" $location) (field "key" string) (field "value" string)))
    (import "metadata-entry" (type $metadata-entry (eq $metadata-entry')))
    (type $request' (record
      (field "operation" string) (field "context-id" (option string)) (field "task-id" (option string))
      (field "requested" (list string))))
    (import "request" (type $request (eq $request')))
    (type $violation' (record (field "pointer" string) (field "message" string)))
    (import "violation" (type $violation (eq $violation')))
    (type $extension-error' (record (field "code" s32) (field "message" string) (field "data" (option string))))
    (import "extension-error" (type $extension-error (eq $extension-error')))
    (type $rejection' (variant (case "violations" (list $violation)) (case "error" $extension-error)))
    (import "rejection" (type $rejection (eq $rejection')))
    (import "validate" (func $validate (param "request" $request) (param "metadata" (list $metadata-entry))
      (result (result (option string) (error $rejection)))))
    (export $out-location "location" (type $location))
    (type $out-metadata-entry' (record (field "location" $out-location) (field "key" string) (field "value" string)))
    (export $out-metadata-entry "metadata-entry" (type $metadata-entry) (type (eq $out-metadata-entry')))
    (export $out-request "request" (type $request))
    (export $out-violation "violation" (type $violation))
    (export $out-extension-error "extension-error" (type $extension-error))
    (type $out-rejection' (variant (case "violations" (list $out-violation)) (case "error" $out-extension-error)))
    (export $out-rejection "rejection" (type $rejection) (type (eq $out-rejection')))
    (export "validate" (func $validate) (func (param "request" $out-request) (param "metadata" (list $out-metadata-entry))
      (result (result (option string) (error $out-rejection))))))
  (instance $state (instantiate $state-interface
    (with "location" (type $location))
    (with "metadata-entry" (type $metadata-entry))
    (with "request" (type $request))
    (with "violation" (type $violation))
    (with "extension-error" (type $extension-error))
    (with "rejection" (type $rejection))
    (with "validate" (func $validate))))
  (export "annex:extension/state@0.1.0" (instance $state)))
