
	/host:CPU
▄Task Environment*profile_options*profile_start_time*profile_stop_time2Ск╘ио┌└Ж2░Ы╛ио┌└Ж22(8"vm