package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"io/fs"
	"slices"
	"time"
)

// An entry is a file of an archive.
type entry struct {
	name string // with slashes, below the folder of the archive
	mode fs.FileMode
	data []byte
}

// sorted returns the entries in the order of their names.
func sorted(all []entry) []entry {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return all
}

// tarGz packs entries into one folder of a compressed tar. All files are root's, from one time.
func tarGz(folder string, all []entry, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	gz, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(gz)
	for _, e := range sorted(all) {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + e.name, Size: int64(len(e.data)), Mode: int64(e.mode),
			ModTime: at, Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := gz.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// zipped packs entries into one folder of a zip file.
func zipped(folder string, all []entry, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range sorted(all) {
		h := &zip.FileHeader{Name: folder + "/" + e.name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(e.mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
