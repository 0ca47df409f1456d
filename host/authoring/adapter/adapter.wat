;; WASI preview 1 for modules of Go and C, with no more imports than the extension was given.
;;
;; What is printed goes to wasi:cli/stdout and stderr, and so into the host's log. There are no arguments, no environment,
;; no files and no sockets. An exit is a trap.
;;
;; Lines between `;; if X` and `;; end` are in the variants that have X alone, those after `;; else` in the others.
;; `clock`: the time is the host's. Without it the time begins at zero, each look at it takes a microsecond, and a sleep
;; is over at once. Calls of the host are bounded, and Go's collector looks at the monotonic clock dozens of times: after a
;; hundred looks it is asked at every 64th, after a sleep and after a look at the time of day. In between a look takes a
;; microsecond.
;; `random`: random numbers are the host's. Without it asking for them is an error: Go then seeds its maps with the time,
;; and crypto/rand panics.
(module $wasi_snapshot_preview1
  (import "wasi:cli/stdout@0.2.12" "get-stdout" (func $get_stdout (result i32)))
  (import "wasi:cli/stderr@0.2.12" "get-stderr" (func $get_stderr (result i32)))
  (import "wasi:io/streams@0.2.12" "[method]output-stream.blocking-write-and-flush"
    (func $write (param i32 i32 i32 i32)))
  ;; if clock
  (import "wasi:clocks/wall-clock@0.2.12" "now" (func $wall_now (param i32)))
  (import "wasi:clocks/monotonic-clock@0.2.12" "now" (func $monotonic_now (result i64)))
  (import "wasi:clocks/monotonic-clock@0.2.12" "subscribe-duration" (func $subscribe (param i64) (result i32)))
  (import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))
  (import "wasi:io/poll@0.2.12" "[resource-drop]pollable" (func $drop_pollable (param i32)))
  ;; end
  ;; if random
  (import "wasi:random/random@0.2.12" "get-random-u64" (func $random (result i64)))
  ;; end
  (import "env" "memory" (memory 0))

  (global $stdout (mut i32) (i32.const 0))
  (global $stderr (mut i32) (i32.const 0))
  ;; Nonzero while Go allocates for the host, when no import may be called.
  (global $paused (mut i32) (i32.const 0))
  (global $time (mut i64) (i64.const 0))
  ;; if clock
  (global $wall_time (mut i64) (i64.const 0))
  (global $looks (mut i32) (i32.const 0))
  ;; Nonzero when the next look at the monotonic clock is to ask the host.
  (global $asks (mut i32) (i32.const 0))
  ;; end

  ;; In nanoseconds.
  (func $look_at_clock (param $id i32) (result i64)
    ;; if clock
    (local $first i64) (local $second i64)
    (if (global.get $paused)
      (then (return (select (global.get $time) (global.get $wall_time) (local.get $id)))))
    (if (local.get $id)
      (then
        (global.set $looks (i32.add (global.get $looks) (i32.const 1)))
        (global.set $time (i64.add (global.get $time) (i64.const 1_000)))
        (if (i32.or (global.get $asks)
              (i32.or (i32.le_u (global.get $looks) (i32.const 100))
                (i32.eqz (i32.and (global.get $looks) (i32.const 63)))))
          (then
            (local.set $first (call $monotonic_now))
            (global.set $asks (i32.const 0))
            (if (i64.gt_u (local.get $first) (global.get $time)) (then (global.set $time (local.get $first))))))
        (return (global.get $time))))
    (global.set $asks (i32.const 1))
    ;; The host's answer takes 16 bytes of the module's memory; what is there is put back.
    (local.set $first (i64.load (i32.const 16)))
    (local.set $second (i64.load (i32.const 24)))
    (call $wall_now (i32.const 16))
    (global.set $wall_time
      (i64.add
        (i64.mul (i64.load (i32.const 16)) (i64.const 1_000_000_000))
        (i64.load32_u (i32.const 24))))
    (i64.store (i32.const 16) (local.get $first))
    (i64.store (i32.const 24) (local.get $second))
    (global.get $wall_time)
    ;; else
    (global.set $time (i64.add (global.get $time) (i64.const 1_000)))
    (global.get $time)
    ;; end
  )

  (func $sleep (param $nanoseconds i64)
    ;; if clock
    (local $pollable i32)
    (if (global.get $paused) (then (return)))
    (local.set $pollable (call $subscribe (local.get $nanoseconds)))
    (call $block (local.get $pollable))
    (call $drop_pollable (local.get $pollable))
    (global.set $asks (i32.const 1))
    ;; else
    (global.set $time (i64.add (global.get $time) (local.get $nanoseconds)))
    ;; end
  )

  (func $clock_time_get (export "clock_time_get") (param $id i32) (param $precision i64) (param $result i32) (result i32)
    (i64.store (local.get $result) (call $look_at_clock (local.get $id)))
    (i32.const 0))

  (func $clock_res_get (export "clock_res_get") (param $id i32) (param $result i32) (result i32)
    (i64.store (local.get $result) (i64.const 1_000))
    (i32.const 0))

  ;; Go calls this around allocations for the host.
  (func $set_paused (export "adapter_monotonic_clock_set_paused") (param $paused i32)
    (global.set $paused (local.get $paused)))

  (func $random_get (export "random_get") (param $bytes i32) (param $count i32) (result i32)
    ;; if random
    (local $number i64)
    (local $left i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (if (i32.eqz (local.get $left))
          (then
            (local.set $number (call $random))
            (local.set $left (i32.const 8))))
        (i64.store8 (local.get $bytes) (local.get $number))
        (local.set $number (i64.shr_u (local.get $number) (i64.const 8)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (local.set $bytes (i32.add (local.get $bytes) (i32.const 1)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.const 0)
    ;; else
    (i32.const 58) ;; not supported
    ;; end
  )

  ;; Each subscription has happened: a time is waited for, and a file has come to its end.
  (func $poll_oneoff (export "poll_oneoff")
    (param $in i32) (param $out i32) (param $count i32) (param $result i32) (result i32)
    (local $timeout i64)
    (i32.store (local.get $result) (local.get $count))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (i64.store (local.get $out) (i64.load (local.get $in)))
        (i64.store offset=8 (local.get $out) (i64.shl (i64.load8_u offset=8 (local.get $in)) (i64.const 16)))
        (i64.store offset=16 (local.get $out) (i64.const 0))
        (i64.store offset=24 (local.get $out) (i64.const 0))
        (if (i32.eqz (i32.load8_u offset=8 (local.get $in)))
          (then
            (local.set $timeout (i64.load offset=24 (local.get $in)))
            (if (i32.and (i32.load16_u offset=40 (local.get $in)) (i32.const 1))
              (then
                (local.set $timeout
                  (i64.sub (local.get $timeout) (call $look_at_clock (i32.load offset=16 (local.get $in)))))))
            (if (i64.gt_s (local.get $timeout) (i64.const 0)) (then (call $sleep (local.get $timeout))))))
        (local.set $in (i32.add (local.get $in) (i32.const 48)))
        (local.set $out (i32.add (local.get $out) (i32.const 32)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  (func $fd_write (export "fd_write")
    (param $fd i32) (param $pieces i32) (param $count i32) (param $result i32) (result i32)
    (local $stream i32) (local $bytes i32) (local $left i32) (local $length i32) (local $written i32)
    (local $first i32) (local $second i32) (local $third i32) (local $failed i32)
    (if (i32.eq (local.get $fd) (i32.const 1))
      (then
        (if (i32.eqz (global.get $stdout)) (then (global.set $stdout (call $get_stdout))))
        (local.set $stream (global.get $stdout)))
      (else
        (if (i32.ne (local.get $fd) (i32.const 2)) (then (return (i32.const 8)))) ;; bad descriptor
        (if (i32.eqz (global.get $stderr)) (then (global.set $stderr (call $get_stderr))))
        (local.set $stream (global.get $stderr))))
    (block $done
      (loop $next_piece
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $bytes (i32.load (local.get $pieces)))
        (local.set $left (i32.load offset=4 (local.get $pieces)))
        (block $end_of_piece
          (loop $next_write
            (br_if $end_of_piece (i32.eqz (local.get $left)))
            ;; The most that one call may write.
            (local.set $length
              (select (local.get $left) (i32.const 4096) (i32.lt_u (local.get $left) (i32.const 4096))))
            ;; The host's answer takes 12 bytes of the module's memory; what is there is put back.
            (local.set $first (i32.load (i32.const 16)))
            (local.set $second (i32.load (i32.const 20)))
            (local.set $third (i32.load (i32.const 24)))
            (call $write (local.get $stream) (local.get $bytes) (local.get $length) (i32.const 16))
            (local.set $failed (i32.load8_u (i32.const 16)))
            (i32.store (i32.const 16) (local.get $first))
            (i32.store (i32.const 20) (local.get $second))
            (i32.store (i32.const 24) (local.get $third))
            (if (local.get $failed) (then (return (i32.const 29)))) ;; input or output error
            (local.set $bytes (i32.add (local.get $bytes) (local.get $length)))
            (local.set $left (i32.sub (local.get $left) (local.get $length)))
            (local.set $written (i32.add (local.get $written) (local.get $length)))
            (br $next_write)))
        (local.set $pieces (i32.add (local.get $pieces) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next_piece)))
    (i32.store (local.get $result) (local.get $written))
    (i32.const 0))

  ;; Standard input is at its end.
  (func $fd_read (export "fd_read") (param $fd i32) (param i32 i32) (param $result i32) (result i32)
    (if (local.get $fd) (then (return (i32.const 8)))) ;; bad descriptor
    (i32.store (local.get $result) (i32.const 0))
    (i32.const 0))

  ;; Input and outputs are terminals, so that the C library writes line by line.
  (func $fd_fdstat_get (export "fd_fdstat_get") (param $fd i32) (param $result i32) (result i32)
    (if (i32.gt_u (local.get $fd) (i32.const 2)) (then (return (i32.const 8)))) ;; bad descriptor
    (i64.store (local.get $result) (i64.const 2))
    (i64.store offset=8 (local.get $result) (i64.const 66)) ;; may be read and written
    (i64.store offset=16 (local.get $result) (i64.const 0))
    (i32.const 0))

  (func $proc_exit (export "proc_exit") (param $code i32)
    unreachable)

  (func $sched_yield (export "sched_yield") (result i32)
    (i32.const 0))

  (func $no_strings (export "args_sizes_get") (export "environ_sizes_get") (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $size) (i32.const 0))
    (i32.const 0))

  (func $nothing (export "args_get") (export "environ_get") (param i32 i32) (result i32)
    (i32.const 0))

  ;; Bad descriptor: no other file is open.
  (func (export "fd_close") (export "fd_datasync") (export "fd_sync") (param i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (export "fd_filestat_get") (export "fd_tell") (export "fd_renumber")
    (export "fd_fdstat_set_flags") (export "sock_shutdown") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_rights") (export "fd_allocate") (param i32 i64 i64) (result i32) (i32.const 8))
  (func (export "fd_advise") (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (export "path_create_directory") (export "path_remove_directory")
    (export "path_unlink_file") (export "sock_accept") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_pread") (export "fd_pwrite") (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32)
    (i32.const 8))
  (func (export "path_filestat_get") (export "path_symlink") (export "sock_send") (param i32 i32 i32 i32 i32)
    (result i32) (i32.const 8))
  (func (export "path_readlink") (export "path_rename") (export "sock_recv") (param i32 i32 i32 i32 i32 i32)
    (result i32) (i32.const 8))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "proc_raise") (param i32) (result i32) (i32.const 58))
)
