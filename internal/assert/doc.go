// Package assert is the language of assertions: of uetperf --assert and --fail-on, and of
// the scenarios of the testbed.
//
// An assertion is an expression of github.com/expr-lang/expr over metrics, such as
// p99<200us, loss==0 && rtx<0.1% or all.goodput > 0.6 * line("s.to").rate. It differs from
// that language as follows:
//
//   - A number may have a unit: 200us, 10Gb/s, 2M/s, 5k, 80%. If an operand follows, % is
//     the remainder: 7 % 2. A number that is compared with a metric must have a unit of the
//     metric's kind. If it is a share, a count is compared as a part of its whole: rtx<0.1%
//     is about the packets sent.
//   - = means ==, and names may be in any case.
//   - tail-max, cpu-peer, p99.9 and msgs/s are names. To mean a difference or a quotient,
//     write blanks.
//   - drops is the sum and drops["crc"] one reason. NAME_ms is a duration in plain
//     milliseconds.
//   - A comparison with a metric that was not measured is false, != included, so that an
//     assertion about it fails rather than passes on a zero.
package assert
