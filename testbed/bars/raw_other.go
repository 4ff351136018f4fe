//go:build !linux

package main

import "errors"

func raw([]string) error { return errors.New("the raw baselines need Linux") }

func syncing([]string) error { return errors.New("durable writes need Linux") }
