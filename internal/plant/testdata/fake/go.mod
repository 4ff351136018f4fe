module example.org/fake

go 1.24
