def same(docs):
    return docs
