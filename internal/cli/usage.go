package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Usage is the text of an error of cobra or pflag in one line: the flag, its value and what is
// wrong with it.
func Usage(err error) string {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	why := bad.Unwrap().Error()
	var num *strconv.NumError
	switch {
	case bad.GetFlag().Value.Type() == "bool":
		why = fmt.Sprintf("%q is neither true nor false", bad.GetValue())
	case errors.As(err, &num) && errors.Is(err, strconv.ErrRange):
		why = bad.GetValue() + " is out of range"
	case errors.As(err, &num):
		why = fmt.Sprintf("%q is not a whole number", bad.GetValue())
	case bad.GetFlag().Value.Type() == "duration":
		why = fmt.Sprintf("time %q is not like 10s, 500ms or 1h", bad.GetValue())
	}
	return "--" + bad.GetFlag().Name + ": " + why
}

// None refuses every argument of a command.
func None(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected %q", args[0])
	}
	return nil
}
