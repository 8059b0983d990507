// Checks of integers on the device. The host does not wait.

// Writes to the slot one number outside [low, high) that is not `also_allowed`.
extern "C" __global__ void check_range(
    const long long* numbers, long long* slot, long long size, long long low, long long high,
    long long also_allowed) {
    FOR_EACH(i, size) {
        long long number = numbers[i];
        if ((number < low || number >= high) && number != also_allowed) write_to_slot(slot, i, number);
    }
}
