from transforms.raw import raw_arrays as raw_arrays
