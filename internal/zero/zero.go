// Package zero is for tests: it calls every method of objects that nobody opened.
package zero

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"
)

// Refuse calls each exported method of each object, a pointer to a zero value, and fails t if one
// panics, does not return, or returns an error for which isErrno is false, unless harmless names
// the method.
func Refuse(t *testing.T, isErrno func(error) bool, harmless map[string]bool, objects ...any) {
	for _, object := range objects {
		typ := reflect.TypeOf(object)
		for i := range typ.NumMethod() {
			// A fresh object for each call: none becomes usable by an earlier one.
			fresh := reflect.New(typ.Elem())
			name := fmt.Sprintf("%v.%s", typ.Elem(), typ.Method(i).Name)
			t.Run(name, func(t *testing.T) {
				err, fails := call(t, fresh.Method(i))
				if fails && !harmless[name] && !isErrno(err) {
					t.Errorf("returned %v, and no errno", err)
				}
			})
		}
	}
}

// noState takes what a Format writes.
type noState struct{ fmt.State }

func (*noState) Write(b []byte) (int, error) { return len(b), nil }

// call calls a method with zero arguments. fails says that it returns an error.
func call(t *testing.T, m reflect.Value) (err error, fails bool) {
	t.Helper()
	var args []reflect.Value
	for i := range m.Type().NumIn() {
		in := m.Type().In(i)
		if m.Type().IsVariadic() && i == m.Type().NumIn()-1 {
			break
		}
		switch {
		case in == reflect.TypeFor[time.Duration]():
			args = append(args, reflect.ValueOf(time.Millisecond))
		case in.Kind() == reflect.Interface && in.NumMethod() > 0 && reflect.TypeOf(t.Context()).Implements(in):
			args = append(args, reflect.ValueOf(t.Context()))
		case in == reflect.TypeFor[fmt.State]():
			args = append(args, reflect.ValueOf(&noState{}))
		case in.Kind() == reflect.Pointer:
			args = append(args, reflect.New(in.Elem()))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	done := make(chan []reflect.Value, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("panic: %v", r)
				done <- nil
			}
		}()
		done <- m.Call(args)
	}()
	select {
	case out := <-done:
		if len(out) == 0 {
			return nil, false
		}
		last := out[len(out)-1]
		if last.Type() != reflect.TypeFor[error]() {
			return nil, false
		}
		err, _ = last.Interface().(error)
		return err, true
	case <-time.After(10 * time.Second):
		return errors.New("it does not return"), true
	}
}
