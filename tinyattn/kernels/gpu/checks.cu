// Checks of integers on the device, and which keys are visible at all. The host does not wait.

// Writes to the slot one number outside [low, high) that is not `also_allowed`.
extern "C" __global__ void check_range(
    const long long* numbers, long long* slot, long long size, long long low, long long high,
    long long also_allowed) {
    FOR_EACH(i, size) {
        long long number = numbers[i];
        if ((number < low || number >= high) && number != also_allowed) write_to_slot(slot, i, number);
    }
}

// Which keys are visible to at least one query: (B, heads of the mask, K), true or false.
extern "C" __global__ void visible_to_any(
    bool* out, long long size, long long heads, long long keys, long long queries,
    VISIBILITY_PARAMETERS) {
    FOR_EACH(i, size) {
        long long key = i % keys, head = i / keys % heads, sample = i / keys / heads;
        bool any = false;
        for (long long query = 0; query < queries && !any; query++)
            any = visible_to(sample, head, query, keys, VISIBILITY)(key);
        out[i] = any;
    }
}
